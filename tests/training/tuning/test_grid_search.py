"""The search: it finds the bottom of a bowl in few steps, tries nothing twice, and leaves nothing out if it may go on."""

import itertools

import numpy as np
import pytest

from pbodl.training.tuning.grid_search import GridSearch


@pytest.mark.parametrize("start", [(0, 0, 0), (4, 3, 2), (2, 0, 1)])
def test_the_search_finds_the_bottom_of_a_bowl(start):
    sizes, bottom = (5, 4, 3), (3, 2, 0)
    search = GridSearch(sizes, start)
    tried: list[tuple[int, ...]] = []
    for _ in range(9):
        points = search.proposals()
        tried += points
        search.tell(points, [sum((a - b) ** 2 for a, b in zip(point, bottom, strict=True)) for point in points])
    assert bottom in tried
    assert len(set(tried)) == len(tried)


def test_the_search_goes_through_the_whole_grid_if_it_may():
    sizes = (3, 4, 2)
    search = GridSearch(sizes, (1, 1, 1))
    rng = np.random.default_rng(0)
    tried: list[tuple[int, ...]] = []
    while points := search.proposals():
        tried += points
        search.tell(points, rng.random(len(points)).tolist())
    assert sorted(tried) == sorted(itertools.product(*map(range, sizes)))

"""Whole draws put together from draws of parts: what they are made of, and their distribution."""

import numpy as np
import pytest

from pbodl.data.hashing import wrapping
from pbodl.serving.scoring.factor_draws import (
    TIMES,
    TOGETHER,
    choose_lines,
    draw_parts,
    noise_for,
    rank_in_draws,
    same_keys,
    slot_of,
)
from pbodl.serving.scoring.pair_factors import Factors
from tests.oracles.placements import best_first
from tests.serving.scoring.test_pair_factors import covariance

N = 21
pytestmark = pytest.mark.nojit


@pytest.fixture(scope="module")
def factors():
    """Factors of candidates with features of their own, features in common, and a list in the last two slots."""
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 2**63, (N, 4)).astype(np.uint64)
    keys[:, 1] = rng.integers(1, 4, N)
    keys[:, 2:] = rng.permuted(np.tile(np.arange(10, 16), (N, 1)), axis=1)[:, :2]
    features = rng.normal(size=(N, 4, 9)) * np.array([0.2, 0.4, 0.1, 0.3])[:, None]
    vectors, weights = rng.normal(size=(N, 16)) * 0.2 + 0.1, rng.normal(size=(N, 8)) * 0.1
    arrays = (one.astype(np.float32) for one in (np.array([0.7]), vectors, weights, features))
    return Factors(*arrays, keys, np.array([5, 6, 7, 7], np.int32))


def drawn(factors, draws, seed):
    """Deviations under every whole draw, read line by line."""
    noise = noise_for(N)
    with wrapping():
        parts = draw_parts(factors, draws, len(noise), np.uint64(seed))
    z = np.zeros((TIMES * draws, N))
    for i in range(TIMES * draws):
        for s in range(N):
            z[i, s] = parts.level[i] + parts.alone[s] * noise[parts.offsets[i] + s]
            for line in parts.chosen[i]:
                sign, at = (1.0, line) if line >= 0 else (-1.0, -1 - line)
                z[i, s] += sign * parts.lines[s // TOGETHER, at, s % TOGETHER]
    return z, parts, noise


def test_whole_draws_have_the_covariance_of_the_factors(factors):
    wanted, root = covariance(factors), np.sqrt(np.diag(covariance(factors)))
    found = np.mean([z.T @ z / len(z) for z, _, _ in (drawn(factors, 40, seed) for seed in range(60))], axis=0)
    assert np.abs((found - wanted) / np.outer(root, root)).max() < 6.0 / np.sqrt(60 * 40)


def test_a_single_part_is_drawn_as_often_as_wanted(factors):
    nothing = np.zeros_like(factors.features)
    alone = factors._replace(features=nothing, weights=np.zeros_like(factors.weights), level=np.zeros(1, np.float32))
    _, parts, _ = drawn(alone, 40, 1)
    assert parts.lines.shape == (2, 40, TOGETHER)
    _, parts, _ = drawn(factors, 40, 1)
    assert parts.chosen.shape == (TIMES * 40, 4)  # vectors, weights, and the two fields that candidates have in common


@pytest.mark.parametrize("bids", [None, np.linspace(0.5, 2.0, N)])
def test_placing_is_ranking_every_draw(factors, bids):
    z, parts, noise = drawn(factors, 24, 7)
    rng = np.random.default_rng(1)
    base, scale, listed, slots, kept = rng.normal(size=N), rng.uniform(0.5, 1.5, N), np.array([4, 0, 20, 7]), 5, 0.3
    worth = (base + scale * z).astype(np.float32)
    if bids is not None:
        from scipy.stats import norm

        ctr = norm.cdf(worth)
        worth = bids * ctr / (ctr + (1.0 - ctr) / kept)
    ref = np.zeros((len(listed), slots), np.int64)
    for line in worth:
        order = best_first(line)
        for q, candidate in enumerate(listed):
            if order.index(candidate) < slots:
                ref[q, order.index(candidate)] += 1
    comp = np.zeros_like(ref)
    rank_in_draws(parts, noise, base, scale, np.empty(0) if bids is None else bids, kept, listed, 0, 20, comp)
    rank_in_draws(parts, noise, base, scale, np.empty(0) if bids is None else bids, kept, listed, 20, len(worth), comp)
    np.testing.assert_array_equal(comp, ref)


def test_keys_that_are_the_same_get_the_same_number():
    keys = np.random.default_rng(2).integers(0, 40, 100).astype(np.uint64)
    with wrapping():
        numbers, counts = same_keys(keys)
    unique, inverse, wanted = np.unique(keys, return_inverse=True, return_counts=True)
    assert len(counts) == len(unique)
    assert (counts[numbers] == wanted[inverse]).all()
    assert len(set(zip(numbers.tolist(), keys.tolist(), strict=True))) == len(unique)


def test_each_line_and_its_mirror_image_are_chosen_equally_often():
    times, first = np.array([8, 0, 16]), np.array([0, 8, 8, 24])
    with wrapping():
        chosen = choose_lines(times, first, 64, np.uint64(4))
    assert chosen.shape == (64, 2)
    for column, lines, often in ((0, range(8), 4), (1, range(8, 24), 2)):
        found = chosen[:, column].tolist()
        assert sorted(found) == sorted(often * [line for one in lines for line in (one, -1 - one)])
        assert found != sorted(found)
    assert abs(np.corrcoef(chosen[:, 0], chosen[:, 1])[0, 1]) < 0.5


def test_the_slot_is_the_place_in_the_order():
    rng = np.random.default_rng(6)
    worth = rng.integers(-15, 15, 200).astype(np.float32)  # with equals
    order = best_first(worth)
    for candidate in range(200):
        assert slot_of(worth, candidate, 200) == order.index(candidate)
        assert min(slot_of(worth, candidate, 3), 3) == min(order.index(candidate), 3)


def test_the_noise_has_variance_1_and_no_order():
    noise = noise_for(5000).astype(np.float64)
    assert abs(noise.mean()) < 1e-6
    assert abs(noise.var() - 1.0) < 1e-4
    for lag in (1, 2, 16):
        assert abs(np.mean(noise[lag:] * noise[:-lag])) < 5.0 / np.sqrt(len(noise))
    assert len(noise_for(20_000)) >= 8 * 20_000

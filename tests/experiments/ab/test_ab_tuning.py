"""Tuning in other worlds: what counts is what a model's choices are worth after the burn-in, and nothing is learned meanwhile."""

import pytest

from pbodl.experiments.ab.ab_tuning import NEVER, SEEDS, TRIED, share_of_best
from pbodl.experiments.ab.ad_features import AdFeatures
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.lineup import TUNED, Arm


def test_learning_pays_and_the_best_is_one():
    world = AdWorld(SEEDS[0], 2, 4000, 40)
    features = AdFeatures(world)
    learned, numb = (
        share_of_best(Arm("test", "ftrl", NEVER, changes=(("alpha", alpha),)), world, features, 1) for alpha in (0.1, 1e-9)
    )
    assert 0.0 < numb < learned < 1.0


def test_every_kind_is_given_as_many_settings():
    assert set(TRIED) == set(TUNED)
    assert len({len(settings) for settings in TRIED.values()}) == 1


@pytest.mark.parametrize("kind", list(TRIED))
def test_every_setting_that_is_tried_is_one(kind):
    for changes in TRIED[kind]:
        model = Arm("test", kind, NEVER, changes=tuple(changes.items())).build(0)
        assert all(changes[key] != TUNED[kind].get(key) for key in changes), changes
        assert model.kind == kind

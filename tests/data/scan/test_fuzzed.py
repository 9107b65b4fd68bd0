"""Every stored input, seed or finding, passes; and so do mutations of them, few in the fast suite and more in the slow one."""

import pytest

from tests.fuzz.corpus import stored
from tests.fuzz.mutated import fuzz
from tests.fuzz.targets import TARGETS, seeds

SLOW = {"decoder", "delta", "snapshot"}  # some milliseconds each


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_passes(name):
    inputs = stored(name) | seeds()[name]
    assert inputs.keys() >= seeds()[name].keys()
    for data in inputs.values():
        TARGETS[name](data)
        TARGETS[name](data[: len(data) // 2])


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_of_the_corpus_pass(name):
    fuzz(name, 100 if name in SLOW else 1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutations_of_the_corpus_pass(name):
    fuzz(name, 5000 if name in SLOW else 200_000, seed=1)

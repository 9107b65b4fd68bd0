"""Criteo's files, as they are: no header, tabs, gaps."""

import gzip
import random

import pytest

from pbodl.data.guess.schema_guess import guess
from pbodl.data.known.criteo import CRITEO
from pbodl.data.log.log_reader import open_log


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = random.Random(0)
    lines = []
    for _ in range(3000):
        numbers = ["" if rng.random() < 0.2 else str(int(rng.paretovariate(0.6)) - 1) for _ in range(13)]
        categories = ["" if rng.random() < 0.1 else f"{hash((place, rng.randrange(50))) & 0xFFFFFFFF:08x}" for place in range(26)]
        lines.append("\t".join([str(int(rng.random() < 0.25)), *numbers, *categories]))
    found = tmp_path_factory.mktemp("criteo") / "day_0.gz"
    found.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return found


def test_a_day(path):
    with open_log(path, CRITEO) as reader:
        (chunk,) = reader
    assert chunk.batch.keys.shape == (3000 * 39,)
    assert 0.2 < chunk.batch.clicks.mean() < 0.3


def test_the_guess_of_it(path):
    found = guess(path)
    assert found.label == "c1"
    kinds = {field.name: field.kind for field in found.fields}
    assert [kinds[f"c{place}"] for place in range(2, 41)] == ["number"] * 13 + ["category"] * 26
    assert {field.group for field in found.fields} == {"context", "ad"}
    with open_log(path, found.schema()) as reader:
        assert sum(len(chunk.batch) for chunk in reader) == 3000
    (unnamed,) = (warning for warning in found.warnings if "the columns are called c1 to c40" in warning)
    assert "`--preset criteo` knows them" in unnamed

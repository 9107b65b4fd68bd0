"""MovieLens' files, old and new."""

import pytest

from pbodl.data.known.movielens import MOVIELENS, MOVIELENS_1M
from pbodl.data.log.log_reader import open_log

ROWS = [(1, 31, 2.5, 1260759144), (1, 1029, 4.0, 1260759179), (2, 31, 5, 1260759200)]


@pytest.mark.parametrize(
    ("name", "between", "header", "schema"),
    [
        ("ratings.csv", ",", "userId,movieId,rating,timestamp\n", MOVIELENS),
        ("u.data", "\t", "", MOVIELENS),
        ("ratings.dat", "::", "", MOVIELENS_1M),
    ],
)
def test_files(tmp_path, name, between, header, schema):
    (tmp_path / name).write_text(header + "".join(between.join(map(str, row)) + "\n" for row in ROWS))
    with open_log(tmp_path / name, schema) as reader:
        (chunk,) = reader
    assert chunk.batch.clicks.tolist() == [0, 1, 1]
    assert chunk.batch.times.tolist() == [row[3] for row in ROWS]
    assert chunk.batch.keys[::2].tolist()[0] == chunk.batch.keys[::2].tolist()[1]

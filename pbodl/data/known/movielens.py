"""The schema of MovieLens' ratings: `--preset movielens` for `ratings.csv` and for the 100k data's `u.data`.

`--preset movielens-1m` is for `ratings.dat`, whose values have two colons between them.

A rating of 4 or more counts as a click. The files are sorted by user: sort them by time first, or the model learns from the future.
"""

from pbodl.data.schema import Field, Schema

_FIELDS = [Field("userId", group="user"), Field("movieId", group="ad")]

MOVIELENS = Schema(
    label="rating >= 4",
    time="timestamp",
    columns=["userId", "movieId", "rating", "timestamp"],
    fields=_FIELDS,
)
MOVIELENS_1M = Schema(
    label="rating >= 4",
    time="timestamp",
    columns=["userId", "gap1", "movieId", "gap2", "rating", "gap3", "timestamp"],
    delimiter=":",
    fields=_FIELDS,
)

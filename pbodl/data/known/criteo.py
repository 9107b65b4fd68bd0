"""The schema of Criteo's click logs: Kaggle's (2014, `train.txt`) and the 1TB logs (`day_0.gz` to `day_23.gz`): `--preset criteo`.

The files have no header: the label, 13 whole numbers (mostly counts), and 26 hashed categories, separated by tabs. There is no
time. Criteo does not say what the columns mean. Here the numbers are the context's, and the categories the ad's.
"""

from pbodl.data.schema import Field, Schema

_NUMBERS = [f"I{number}" for number in range(1, 14)]
_CATEGORIES = [f"C{number}" for number in range(1, 27)]

CRITEO = Schema(
    label="label",
    columns=["label", *_NUMBERS, *_CATEGORIES],
    delimiter="\t",
    fields=[
        *(Field(name, group="context", kind="number") for name in _NUMBERS),
        *(Field(name, group="ad") for name in _CATEGORIES),
    ],
)

"""Off-policy estimators by their definitions: plain loops over impressions, and a jackknife over requests for the errors."""

import math


def ips(rows, requests):
    total = 0.0
    for row in rows:
        total += row["reward"] * row["target"] / row["propensity"]
    return total / requests


def snips(rows, requests):
    value = 0.0
    for slot in sorted({row["slot"] for row in rows}):
        mine = [row for row in rows if row["slot"] == slot]
        weighted = sum(row["reward"] * row["target"] / row["propensity"] for row in mine)
        weights = sum(row["target"] / row["propensity"] for row in mine)
        value += len(mine) / requests * weighted / weights
    return value


def doubly_robust(rows, requests):
    """From the probabilities of all actions, `policy`, and the predicted rewards of all, `rewards`."""
    total = 0.0
    for row in rows:
        for chance, reward in zip(row["policy"], row["rewards"], strict=True):
            total += chance * reward
        total += row["target"] / row["propensity"] * (row["reward"] - row["rewards"][row["action"]])
    return total / requests


def jackknife(estimator, rows):
    """The standard error of an estimator, from leaving out every request once."""
    names = sorted({row["request"] for row in rows})
    left_out = [estimator([row for row in rows if row["request"] != name], len(names) - 1) for name in names]
    mean = sum(left_out) / len(names)
    return math.sqrt((len(names) - 1) / len(names) * sum((one - mean) ** 2 for one in left_out))

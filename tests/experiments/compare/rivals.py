"""What every adapter of another library must do, on a log with every kind of column."""

import msgspec
import numpy as np

from pbodl.experiments.compare.compare_run import CompareSettings, compare
from pbodl.experiments.compare.contestants import OTHERS
from pbodl.training.config import check_config
from tests.click_log import RICH, click_log
from tests.training.logs import chunks

CONFIG = check_config({"schema": msgspec.to_builtins(RICH)})
GOOD = {row["ad"] for row in click_log(20)[:10]}  # ads that everybody likes: linear models see it as well
DRAWS = np.random.default_rng(0).random(3000)
LOG = [{**row, "click": int(draw < (0.7 if row["ad"] in GOOD else 0.1))} for row, draw in zip(click_log(3000), DRAWS, strict=True)]


def check_rival(slug: str, online: bool = True) -> None:
    """It learns something, predicts before it learns, is frozen when it predicts, and can be tuned."""
    entry = next(entry for entry in OTHERS if entry.slug == slug)
    contestant = entry.build(RICH)
    batches = [chunk.batch for chunk in chunks(LOG, contestant.schema, size=500)]
    again = entry.build(RICH)
    flipped = [batch._replace(clicks=1 - batch.clicks) for batch in batches]
    first = contestant.learn(batches[0])
    if online:
        np.testing.assert_allclose(first[:1], again.learn(flipped[0])[:1])  # of the first label it knows nothing
        assert np.ptp(first[1:]) > 0
    else:
        assert first is None
    for batch in batches[1:5]:
        contestant.learn(batch)
    contestant.finish()
    predicted = contestant.predict(batches[5])
    np.testing.assert_array_equal(predicted, contestant.predict(batches[5]))
    assert ((predicted > 0) & (predicted < 1)).all()
    clicks = batches[5].clicks > 0
    assert predicted[clicks].mean() > predicted[~clicks].mean() + 0.1

    result = compare(CONFIG, LOG, CompareSettings(trials=3, tune_rows=1000), ["adpredictor", slug])
    line = result["models"][1]
    assert (line["progressive"] is not None) == online and (line["against"]["progressive"] is not None) == online
    assert line["against"]["frozen"]["log_loss_low"] < line["against"]["frozen"]["log_loss_high"]
    assert line["library"].startswith(entry.package) and set(line["settings"]) == set(entry.grid)

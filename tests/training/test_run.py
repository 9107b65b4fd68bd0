"""The training loop itself: figures are counted beside the learning, and none is lost on the way."""

import numpy as np
import pytest

from pbodl.data.log.chunks import Chunk, LogPosition
from pbodl.data.sampling import kept_rows
from pbodl.training.run import Run, Status, learn_rows
from pbodl.training.tracker import Tracker
from tests.click_log import click_log
from tests.training.logs import chunks, small_config

ROWS, CHUNK = 500, 100


def started(folder) -> tuple[Run, list[Chunk]]:
    config = small_config(training={"every": "6h"})
    read = [one._replace(position=LogPosition(row=(n + 1) * CHUNK)) for n, one in enumerate(chunks(click_log(ROWS), size=CHUNK))]
    return Run.start(config, folder, read[0].batch), read


def test_statuses_are_right_at_first_a_chunk_behind_then_and_right_at_the_end(tmp_path):
    run, read = started(tmp_path)
    seen: list[Status] = []
    assert not run.learn(read, lambda status: seen.append(status))
    assert [status.rows for status in seen] == [100, 200, 300, 400, 500, 500]
    assert [status.figures.rows for status in seen] == [100, 100, 200, 300, 400, 500]
    assert seen[-1].figures == run.tracker.overall()


@pytest.mark.parametrize("stop", [100, 300])
def test_when_it_is_stopped_all_that_was_learned_is_counted_and_saved(tmp_path, stop):
    run, read = started(tmp_path)
    assert run.learn(read, lambda status: status.rows == stop)
    assert run.tracker.overall().rows == run.rows == run.model.rows_learned == stop
    again = Run.resume(run.config, tmp_path)
    assert again.tracker.overall() == run.tracker.overall() and again.position["row"] == stop


def test_what_cannot_be_counted_is_not_saved(tmp_path, monkeypatch):
    run, read = started(tmp_path)

    def broken(self, *given):
        raise RuntimeError("no room for figures")

    monkeypatch.setattr(Tracker, "add", broken)
    with pytest.raises(RuntimeError, match="no room"):
        run.learn(read)
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize("power", ["once", "paper"])
def test_sets_of_negatives_multiply_their_messages(power):
    """Rows of several sets count as if each set had learned its own sample, to a power that makes up for their number."""
    config = small_config(training={"negative_rate": 0.4, "sets": 2, "power": power})
    batch = chunks(click_log(ROWS), size=ROWS)[0].batch
    model = config.build(0.4)
    learned, predicted, stands_for = learn_rows(model, batch, 1000)
    sets = [kept_rows(batch.clicks, 1000, model.spec.seed + one, 0.4) for one in (0, 1)]
    times = np.add(*sets, dtype=np.float32)
    np.testing.assert_array_equal(learned.times, batch.times[times > 0])
    np.testing.assert_allclose(learned.weights, (batch.weights * times)[times > 0] / (1 if power == "paper" else 2))
    np.testing.assert_allclose(stands_for, np.where(learned.clicks > 0, 1.0, 1 / (1 - 0.6**2)))
    ref = config.build(0.4)
    np.testing.assert_array_equal(predicted, ref.learn(learned))
    assert model.rows_learned == len(learned) == len(predicted)

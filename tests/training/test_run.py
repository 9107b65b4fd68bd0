"""The training loop itself: figures are counted beside the learning, and none is lost on the way."""

import pytest

from pbodl.data.log.chunks import Chunk, LogPosition
from pbodl.training.run import Run, Status
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

"""Following in a thread: the predictor changes when there is something new, and stays when there is trouble."""

import numpy as np
import pytest

from pbodl.publishing.publisher import Publisher
from pbodl.serving.predictor_source import Following
from tests.publishing.published import steps
from tests.serving.processes import until
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, rows_of, trained


def test_a_thread_follows(tmp_path):
    model = trained()
    publisher = Publisher(model, tmp_path)
    with Following(tmp_path, poll_every=0.01) as source:
        assert source.predictor is None
        for rows in steps()[:4]:
            model.learn(rows)
            version = publisher.publish()
            until(lambda version=version: source.predictor is not None and source.predictor.version.number == version, "following")
            scores = source.predictor.score(USER, CONTEXT, CANDIDATES)
            np.testing.assert_allclose(scores.ctr, model.predict(rows_of(REQUEST)).ctr, rtol=1e-5)
        assert source.troubles == {"damaged": 0, "missing": 0}


def test_trouble_leaves_the_predictor_that_is_there(tmp_path, monkeypatch, caplog):
    model = trained()
    publisher = Publisher(model, tmp_path)
    publisher.publish()
    with Following(tmp_path, poll_every=0.01) as source:
        before = source.predictor

        def fails():
            raise OSError("the store does not answer")

        monkeypatch.setattr(source._follower.folder, "entries", fails)
        until(lambda: "does not answer" in caplog.text, "the trouble")
        assert source.predictor is before
        monkeypatch.undo()
        model.learn(steps()[0])
        publisher.publish()
        until(lambda: source.predictor is not before, "going on")


@pytest.mark.parametrize("name", ["concat", "sum", "ffm", "decay"])
def test_every_kind_is_made_ready(tmp_path, name):
    model = trained(name)
    model.save(tmp_path)
    with Following(tmp_path) as source:
        scores = source.predictor.score(USER, CONTEXT, CANDIDATES)
    np.testing.assert_allclose(scores.ctr, model.predict(rows_of(REQUEST)).ctr, rtol=1e-5)

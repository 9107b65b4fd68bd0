"""A predictor that is made ready answers as the model does, and knows the ads of the one before."""

import numpy as np
import pytest

from pbodl.serving.models.predictor_source import ready
from pbodl.serving.scoring.predictor import Predictor
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, rows_of, trained


@pytest.mark.parametrize("name", ["concat", "sum", "ffm", "decay"])
def test_every_kind_is_made_ready(name):
    model = trained(name)
    scores = ready(Predictor.of(model)).score(USER, CONTEXT, CANDIDATES)
    np.testing.assert_allclose(scores.ctr, model.predict(rows_of(REQUEST)).ctr, rtol=1e-5)


def test_the_ads_of_the_one_before_are_prepared():
    model = trained()
    before = ready(Predictor.of(model))
    ref = before.score(USER, CONTEXT, CANDIDATES)
    comp = ready(Predictor.of(model), before)
    assert comp._remembered.size == before._remembered.size
    np.testing.assert_array_equal(comp.score(USER, CONTEXT, CANDIDATES).ctr, ref.ctr)

"""Every baseline against the battery of `tests/contract.py`."""

import pytest

from tests.baselines.factories import BASELINE_OPT_OUTS, BASELINES
from tests.contract import PROPERTIES


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", BASELINES)
def test_property(kind: str, check) -> None:
    if (kind, check.__name__) in BASELINE_OPT_OUTS:
        pytest.skip(BASELINE_OPT_OUTS[kind, check.__name__])
    check(BASELINES[kind])

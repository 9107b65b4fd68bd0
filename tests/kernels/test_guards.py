"""The guards: what passes, what does not, and that a rejected step changes neither mean nor variance."""

import numpy as np
import pytest

from pbodl.kernels.guards import CAUTIOUS, LARGEST, LEAST_KEPT, LEAST_SHARE, SMALLEST, guarded, in_bounds, least_precision, only_if

F32 = np.float32


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("mean", "variance", "passes"),
    [
        (0.0, 1.0, True),
        (-9.9e5, 9.9e5, True),
        (0.0, SMALLEST, False),
        (0.0, 0.0, False),
        (0.0, -1.0, False),
        (0.0, LARGEST, False),
        (LARGEST, 1.0, False),
        (-LARGEST, 1.0, False),
        (np.nan, 1.0, False),
        (0.0, np.nan, False),
        (np.inf, 1.0, False),
        (0.0, np.inf, False),
    ],
)
def test_bounds(mean, variance, passes):
    assert bool(in_bounds(F32(mean), F32(variance))) == passes


@pytest.mark.nojit
def test_a_step_is_taken_whole_or_not_at_all():
    assert guarded(F32(1.0), F32(2.0), F32(0.5), F32(0.25), True) == (1.5, 1.75, 0.0)
    assert guarded(F32(1.0), F32(2.0), F32(np.nan), F32(0.25), False) == (1.0, 2.0, 1.0)


@pytest.mark.nojit
def test_only_what_is_good_counts():
    assert only_if(np.bool_(True), F32(-1.25)) == F32(-1.25)
    assert only_if(np.bool_(False), F32(np.nan)) == 0.0


@pytest.mark.nojit
def test_a_weight_keeps_half_of_its_priors_precision():
    assert least_precision(0.25) == pytest.approx(2.0)
    # The thresholds that every result was measured with.
    assert (LEAST_SHARE, LEAST_KEPT, CAUTIOUS.kept, CAUTIOUS.farthest) == (0.5, 0.1, 0.5, 4.0)

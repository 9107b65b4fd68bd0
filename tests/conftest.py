"""Settings that all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# The battery that every model passes: its asserts shall explain themselves as those in test files do.
pytest.register_assert_rewrite("tests.contract")

# Examples are the same in every run. The first one may wait for a compiler, so time is no criterion.
settings.register_profile("pbodl", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pbodl")

"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Examples are the same in every run. The first one may wait for a compiler, so time is no criterion.
settings.register_profile(
    "pbodl", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pbodl")

"""Settings that all tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.streaming.kafka_broker import KafkaBrokers

# The battery that every model passes: its asserts shall explain themselves as those in test files do.
pytest.register_assert_rewrite("tests.contract")

# Examples are the same in every run. The first one may wait for a compiler, so time is no criterion.
settings.register_profile("pbodl", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pbodl")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator["KafkaBrokers"]:
    """One Kafka broker for all tests of a process; whoever kills it starts it again. Mark the tests with `needs_kafka`."""
    from tests.streaming.kafka_broker import KafkaBrokers

    broker = KafkaBrokers(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.close()

"""Settings that all tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.streaming.kafka_broker import KafkaBrokers

# The battery that every model passes: its asserts shall explain themselves as those in test files do.
pytest.register_assert_rewrite("tests.contract")

# These files take longest, or wait longest. Processes that test side by side begin with them, and end together with short ones.
LONGEST = [
    "tests/test_docs.py",
    "tests/streaming/sources/test_kafka_topic.py",
    "tests/serving/web/test_openapi.py",
    "tests/parallel/cluster/test_on_ray.py",
    "tests/streaming/test_chaos.py",
    "tests/serving/sharing/test_route.py",
    "tests/serving/test_serve.py",
    "tests/parallel/threads/test_learning_threads.py",
    "tests/kernels/test_network.py",
    "tests/streaming/test_waiting.py",
    "tests/serving/scoring/test_drawn_candidates.py",
    "tests/training/test_resume.py",
    "tests/streaming/cluster/test_cluster_service.py",
    "tests/experiments/test_live.py",
    "tests/kernels/layers/test_slopes.py",
    "tests/test_structure.py",
    "tests/test_package.py",
    "tests/data/scan/test_structure.py",
    "tests/serving/models/test_parts_follower.py",
    "tests/streaming/test_online_service.py",
    "tests/experiments/ab/test_ab_experiment.py",
]

# These train with JAX, whose threads stay. Whatever forks afterwards in the same process is warned that a copy may hang, so they
# come last.
WITH_JAX = [
    "tests/training/test_session.py",
    "tests/baselines/test_contract.py",
    "tests/baselines/test_batch_training.py",
    "tests/baselines/test_batch_models.py",
    "pbodl/baselines/batch_dnn.py",
    "pbodl/baselines/batch_fm.py",
]

# Examples are the same in every run. The first one may wait for a compiler, so time is no criterion.
settings.register_profile("pbodl", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pbodl")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, what must not be followed by a fork last, and everything else between them as it stands."""
    order = {name: 1 + number for number, name in enumerate(WITH_JAX)}
    if hasattr(config, "workerinput"):  # one of several processes
        order |= {name: number - len(LONGEST) for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], 0))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator["KafkaBrokers"]:
    """One Kafka broker for all tests of a process; whoever kills it starts it again. Mark the tests with `needs_kafka`."""
    from tests.streaming.kafka_broker import KafkaBrokers

    broker = KafkaBrokers(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.close()

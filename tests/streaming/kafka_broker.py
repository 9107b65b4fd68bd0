"""Kafka brokers of a test's own, on free ports of the loopback: they start, are killed, and start again with what they had.

Each broker has three listeners: plain, TLS, and TLS with a name and a password (SCRAM). `make kafka` fetches the program; without
it, or without Java, the tests are skipped, unless PBODL_TEST_KAFKA is "required" (`make test-kafka`).
"""

import functools
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

HOME = Path(os.environ.get("PBODL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "pbodl"
JAVA = shutil.which("java")
FOLDER = max((path.parent for path in HOME.glob("kafka-*/complete")), default=None)
REQUIRED = os.environ.get("PBODL_TEST_KAFKA") == "required"
MISSING = "there is no Kafka broker; `make kafka` fetches one (it needs Java 17, Maven and a network)"
needs_kafka = [
    pytest.mark.kafka,
    pytest.mark.skipif((FOLDER is None or JAVA is None) and not REQUIRED, reason=MISSING),
]

CLUSTER = "cGJvZGwtdGVzdC1icm9rZXI"  # the id of every cluster: 16 bytes in base64
USER, PASSWORD = "reader", "sesame"
LISTENERS = ("PLAINTEXT", "SSL", "SASL_SSL")
STARTED = 300.0  # seconds that brokers have to start on a busy machine
ENGINE = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaBrokers:
    """One broker, or several that hold a copy of every partition each.

    behind  port of a proxy through which clients of the plain listener come, for one broker
    """

    def __init__(self, folder: Path, count: int = 1, behind: int | None = None, **settings: Any) -> None:
        if FOLDER is None or JAVA is None:
            raise RuntimeError(MISSING)
        self.folder, self.count, self._behind = folder, count, behind
        ports = [free_port() for _ in range(count * (len(LISTENERS) + 1))]
        self._ports = [ports[first : first + len(LISTENERS) + 1] for first in range(0, len(ports), len(LISTENERS) + 1)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.authority = _certificates(folder)
        for number in range(count):
            self._write_settings(number, settings)
            scram = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._file(number)), "--add-scram", scram)
        for number in range(count):
            self.start(number, wait=False)
        if behind is None:
            self.wait()

    @property
    def port(self) -> int:
        """Where the plain listener of the first broker is."""
        return self._ports[0][0]

    def servers(self, listener: str = "PLAINTEXT") -> str:
        at = LISTENERS.index(listener)
        return ",".join(f"127.0.0.1:{ports[at]}" for ports in self._ports)

    def address(self, topic: str) -> str:
        return f"kafka://{self.servers()}/{topic}"

    def start(self, number: int = 0, wait: bool = True) -> None:
        log = open(self.folder / f"broker-{number}.log", "ab")  # noqa: SIM115
        command = [str(JAVA), *ENGINE, "-cp", f"{FOLDER}/*", "kafka.Kafka", str(self._file(number))]
        self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        if wait:
            self.wait()

    def kill(self, number: int = 0) -> None:
        """End a broker as a power cut would."""
        process = self._processes.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def pause(self, number: int = 0) -> None:
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int = 0) -> None:
        self._processes[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def wait(self) -> None:
        """Wait until all brokers that run know each other."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + STARTED
        while time.monotonic() < until:
            if any(process.poll() is not None for process in self._processes.values()):
                break
            try:
                if len(self.admin.list_topics(timeout=2).brokers) >= len(self._processes):
                    return
            except KafkaException:
                time.sleep(0.1)
        logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("broker-*.log"))
        self.close()
        raise RuntimeError(f"the Kafka brokers did not start:\n{logs}")

    @functools.cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers(), "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **settings: Any) -> str:
        """Create a topic, with settings such as retention_ms=1000; its address."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        config = {name.replace("_", "."): str(value) for name, value in settings.items()}
        until = time.monotonic() + STARTED
        while True:  # a topic of this name may still be on its way out
            try:
                new = NewTopic(topic, num_partitions=partitions, replication_factor=self.count, config=config)
                self.admin.create_topics([new])[topic].result(STARTED)
                break
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        while len(self.admin.list_topics(topic, timeout=STARTED).topics[topic].partitions) != partitions:
            time.sleep(0.05)
        return self.address(topic)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(STARTED)

    def delete_before(self, topic: str, part: int, offset: int) -> None:
        """Delete the first messages of a partition, as retention does."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(topic, part, offset)
        next(iter(self.admin.delete_records([at]).values())).result(STARTED)

    def _file(self, number: int) -> Path:
        return self.folder / f"broker-{number}.properties"

    def _java(self, *command: str) -> None:
        done = subprocess.run([str(JAVA), *ENGINE, "-cp", f"{FOLDER}/*", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def _write_settings(self, number: int, settings: dict[str, Any]) -> None:
        *clients, controller = self._ports[number]
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in zip(LISTENERS, clients, strict=True)]
        names = (*LISTENERS, "CONTROLLER")
        protocols = (*LISTENERS, "PLAINTEXT")
        voters = [f"{n + 1}@127.0.0.1:{ports[-1]}" for n, ports in enumerate(self._ports)]
        copies = str(self.count)
        lines = {
            "process.roles": "broker,controller",
            "node.id": number + 1,
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join([f"{LISTENERS[0]}://127.0.0.1:{self._behind or clients[0]}", *listeners[1:]]),
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in zip(names, protocols, strict=True)),
            "log.dirs": self.folder / f"data-{number}",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "min.insync.replicas": (self.count + 1) // 2,
            "transaction.state.log.min.isr": (self.count + 1) // 2,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "group.consumer.min.session.timeout.ms": 1000,
            "group.consumer.session.timeout.ms": 6000,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 500,
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": 6000,
            "log.retention.check.interval.ms": 500,
            "log.cleaner.backoff.ms": 200,
            "log.initial.task.delay.ms": 500,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / "broker.pem",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",  # noqa: E501
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self._file(number).write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")


def _certificates(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself; writes the key with it for the brokers."""
    key, certificate = folder / "key.pem", folder / "authority.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "broker.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    return certificate

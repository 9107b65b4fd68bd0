"""A Kafka broker on this machine, for `pbodl up`: on free ports of the loopback, with its data in a folder that it finds again.

`make kafka` fetches the program into the cache folder; Java runs it.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pbodl.errors import InputError

CLUSTER = "cGJvZGwtbG9jYWwtYnJva2U"  # the id of the cluster: 16 bytes in base64
STARTED = 120.0  # seconds that the broker has to start
ENDED = 20.0  # seconds that it has to end
ENGINE = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def cache_folder() -> Path:
    """Where `make kafka` puts brokers."""
    return Path(os.environ.get("PBODL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "pbodl"


def broker_program() -> tuple[str, Path]:
    """The programs of Java and of the broker; InputError, with the line to type, if one is missing."""
    java = shutil.which("java")
    if java is None:
        raise InputError(
            "a Kafka broker needs Java 17 or newer, and there is no `java`; on Debian, run: apt-get install default-jre-headless"
        )
    cache = cache_folder()
    found = max((path.parent for path in cache.glob("kafka-*/complete")), default=None)
    if found is None:
        told = "in a clone of the project, run: make kafka. Or name a broker of yours: --source kafka://HOST:9092/TOPIC"
        raise InputError(f"there is no Kafka broker in {cache}; {told}")
    return java, found


@contextmanager
def local_broker(folder: Path) -> Iterator[str]:
    """Within the block, a broker runs with its data in `folder`; gives its host and port."""
    java, program = broker_program()
    folder.mkdir(parents=True, exist_ok=True)
    client, controller = _free_ports(2)
    settings, log = folder / "broker.properties", folder / "broker.log"
    settings.write_text(
        "".join(f"{name}={value}\n" for name, value in _settings(folder, client, controller).items()), encoding="utf-8"
    )
    run = [java, *ENGINE, "-cp", f"{program}/*"]
    if not (folder / "data" / "meta.properties").exists():
        made = subprocess.run(
            [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise InputError(f"the Kafka broker cannot use {folder}: {(made.stderr or made.stdout)[-500:]}")
    with log.open("ab") as file:
        process = subprocess.Popen([*run, "kafka.Kafka", str(settings)], stdout=file, stderr=file, start_new_session=True)
    try:
        _wait(process, client, log)
        yield f"127.0.0.1:{client}"
    finally:
        process.terminate()
        try:
            process.wait(ENDED)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + STARTED
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.2)
    raise InputError(f"the Kafka broker did not start; its log, {log}, ends with: {log.read_text(errors='replace')[-500:]}")


def _settings(folder: Path, client: int, controller: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "auto.create.topics.enable": "false",
        "log.retention.bytes": 2**30,  # of a partition
    }


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports

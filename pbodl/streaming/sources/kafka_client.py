"""The client library of Kafka, in its one home, and how it is configured: addresses, options, and secrets from their files."""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pbodl.errors import InputError
from pbodl.system.addresses import is_secret, refuse_secrets, secret_from, without_secrets
from pbodl.system.extras import install_line

try:
    from confluent_kafka import Consumer as Consumer
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka import Producer as Producer
    from confluent_kafka import TopicCollection as TopicCollection
    from confluent_kafka import TopicPartition as TopicPartition
    from confluent_kafka.admin import AdminClient as AdminClient
    from confluent_kafka.admin import NewTopic
except ImportError as error:
    raise InputError(f"reading Kafka topics needs its client; run: {install_line('kafka')}") from error

ANSWER = 2.0  # seconds to wait for a broker's answer
CREATED = 60.0  # seconds that a broker that has just started has to create a topic
VARIABLE = "PBODL_KAFKA_PASSWORD"
INSTEAD = f"set {VARIABLE}, or name a file: kafka://host:9092/topic?password_file=FILE, or ?options_file=FILE for any option"
QUIET = {"log_level": 2}


class KafkaAddress(NamedTuple):
    """What an address names."""

    name: str  # as people write it
    servers: str
    topic: str
    group: str | None
    options: dict[str, str]  # of the client library
    partition: int | None = None  # the only one to read

    def plainly(self, error: Any) -> str:
        """The text of an error, without the secrets among the options."""
        text = error.args[0].str() if isinstance(error, KafkaException) else error.str()
        for name, value in self.options.items():
            text = text.replace(value, "***") if is_secret(name) and value else text
        return without_secrets(text)


def address_of(address: str) -> KafkaAddress:
    """The parts of an address, with the secrets from where they are kept."""
    refuse_secrets(address, INSTEAD)
    shown = without_secrets(address)
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise InputError(f"{shown!r} is not an address ({error}); write kafka://host:9092/topic") from None
    topic = parts.path.strip("/")
    if not topic or not parts.netloc:
        raise InputError(f"{shown!r} does not name a topic; write kafka://host:9092/topic")
    for server in parts.netloc.split(","):
        port = server.rpartition(":")[2] if ":" in server else "9092"
        if not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InputError(f"{shown!r}: the port of {server!r} must be a number from 1 to 65535")
    options = dict(parse_qsl(parts.query))
    file, password_file, group = (options.pop(name, None) for name in ("options_file", "password_file", "group"))
    only = options.pop("partition", None)
    if only is not None and (group is not None or not only.isdecimal()):
        raise InputError(f"{shown!r}: `partition` must be a number; leave `group` out with it")
    options = (_options_of(file) if file is not None else {}) | options
    if (password := secret_from(password_file, VARIABLE)) is not None:
        options["sasl.password"] = password
    return KafkaAddress(shown, parts.netloc, topic, group, options, None if only is None else int(only))


def _options_of(file: str) -> dict[str, str]:
    """The options in a file: lines of the form name=value, and comments with #."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the options file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    options = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            if not equals:
                raise InputError(f"{file}, line {number}: an option has the form name=value")
            options[name.strip()] = value.strip()
    return options


def new_client(kind: Any, address: KafkaAddress, options: dict[str, Any]) -> Any:
    """A consumer or producer; `options` go before those of the address."""
    try:
        return kind(options)
    except (KafkaException, ValueError, TypeError) as error:
        told = address.plainly(error) if isinstance(error, KafkaException) else str(error)
        raise InputError(f"{address.name}: the client library refuses an option: {told}") from error


def create_topic(address: str, partitions: int) -> None:
    """Create the topic of an address, unless it exists; InputError if the broker does not answer, or refuses."""
    parts = address_of(address)
    admin = new_client(AdminClient, parts, QUIET | {"bootstrap.servers": parts.servers} | parts.options)
    try:
        if parts.topic not in admin.list_topics(timeout=CREATED).topics:
            admin.create_topics([NewTopic(parts.topic, num_partitions=partitions, replication_factor=1)])[parts.topic].result(
                CREATED
            )
    except KafkaException as error:
        raise InputError(f"{parts.name}: the topic cannot be used: {parts.plainly(error)}") from error

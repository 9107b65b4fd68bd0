"""`python -m benchmarks.kafka_reading`: events per second from a real Kafka broker, packed and alone, read, decoded and joined.

The broker is that of the tests (`make kafka`), on the loopback. Processor time counts all threads of the reader: it says what one
core can do, also where other work slows the clock down.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.online_cluster import chunks_of
from pbodl.data.synthetic import World
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.join.click_join import Join
from pbodl.streaming.sources.event_source import open_source
from pbodl.streaming.sources.kafka_sink import KafkaSink
from tests.streaming.kafka_broker import KafkaBrokers

WAIT = 0.5  # seconds for which a read waits for more


def read_all(address: str, expected: int, world: World, joined: bool) -> tuple[float, float]:
    """Seconds, and processor seconds, to read, decode and, if asked to, join that many events."""
    decoder, join, seen = EventDecoder(world.schema), Join(world.schema), 0
    source = open_source(address)
    position = source.start("start")
    began, used = time.monotonic(), time.process_time()
    while seen < expected:
        pack = source.read(position, WAIT)
        position = pack.position
        events = decoder.decode(pack.contents)
        seen += len(events)
        if joined and len(events):
            join.add(events)
    spent = time.monotonic() - began, time.process_time() - used
    source.close()
    assert seen == expected
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--packs", type=int, nargs="+", default=[500, 1])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    world = World(seed=0, rows=given.rows)
    with tempfile.TemporaryDirectory() as name:
        brokers = KafkaBrokers(Path(name))
        try:
            for size in given.packs:
                address = brokers.create(f"packs-of-{size}", partitions=1)
                sink, sent = KafkaSink(address, size), 0
                for chunk in chunks_of(world, given.rows if size > 1 else given.rows // 10):
                    sink.send(chunk)
                    sent += len(chunk)
                sink.close()
                read_all(address, sent, world, True)  # compiles
                for joined in (False, True):
                    laps = [read_all(address, sent, world, joined) for _ in range(given.rounds)]
                    clock, busy = (sent / statistics.median(times) for times in zip(*laps, strict=True))
                    what = "read, decoded and joined" if joined else "read and decoded"
                    print(f"{size} event(s) to a message, {sent:,} events {what}: {clock:,.0f}/s, {busy:,.0f} per processor second")
        finally:
            brokers.close()


if __name__ == "__main__":
    main()

"""Redis streams: packed or not, from a position, in a group, over a server's death, and with entries that are gone."""

import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.sources.event_source import Away, StreamPosition
from pbodl.streaming.sources.redis_stream import RedisSink, RedisStream
from tests.streaming.redis_server import RedisServer, needs_redis
from tests.streaming.traffic import SCHEMA, impression

pytestmark = needs_redis


def times(source: RedisStream, after: StreamPosition) -> tuple[list[float], StreamPosition]:
    found: list[float] = []
    while pack := source.read(after, 0.02):
        found, after = found + EventDecoder(SCHEMA).decode(pack.contents).times.tolist(), pack.position
    return found, after


def send(address: str, first: int, stop: int, pack: int) -> None:
    sink = RedisSink(address, pack)
    sink.send([impression(f"i{n}", n) for n in range(first, stop)])
    sink.close()


def test_packed_and_single_events_and_plain_entries(redis_server: RedisServer) -> None:
    address = redis_server.address("s")
    send(address, 0, 10, 4)
    send(address, 10, 13, 1)
    redis_server.client.xadd("s", {"event": "impression", "id": "x", "time": "13.5", "ad": "a"})
    redis_server.client.xadd("s", {"data": msgspec.json.encode([impression("y", 14)])})
    source = RedisStream(address)
    found, after = times(source, source.start("start"))
    assert found == [*range(13), 13.5, 14]
    assert source.ended(after) and source.start("end") == after and not source.ended(source.start("start"))
    send(address, 20, 25, 2)
    assert times(RedisStream(address), StreamPosition.of(after.plain()))[0] == [20, 21, 22, 23, 24]


def test_a_server_that_dies_is_waited_for(redis_server: RedisServer) -> None:
    address = redis_server.address("s")
    send(address, 0, 4, 2)
    source = RedisStream(address)
    found, after = times(source, source.start("start"))
    redis_server.kill()
    assert not source.read(after, 0.02) and not source.ended(after) and source.reconnects == 1
    redis_server.start()
    assert source.read(after, 0.0).gap is None
    send(address, 4, 6, 1)
    assert (found, times(source, after)[0]) == ([0, 1, 2, 3], [4, 5])


def test_entries_that_are_gone_are_told(redis_server: RedisServer) -> None:
    address, client = redis_server.address("s"), redis_server.client
    send(address, 0, 6, 1)
    source = RedisStream(address)
    middle = source.read(source.start("start"), 0.02).position
    send(address, 6, 12, 1)
    client.xtrim("s", maxlen=3, approximate=False)
    # Lagging, the stream is trimmed beyond the position: the pack behind the gap has what is left, and the gap is told once.
    pack = source.read(middle, 0.02)
    assert (
        "3 entries" in str(pack.gap)
        and "were trimmed or deleted before they were read" in str(pack.gap)
        and len(pack.contents) == 3
    )
    assert source.read(pack.position, 0.02).gap is None and source.lag(pack.position) == 0
    client.delete("s")
    lost = source.read(pack.position, 0.02)
    assert "the server has lost entries" in str(lost.gap)
    send(address, 20, 22, 1)
    assert times(source, lost.position)[0] == [20, 21]


def test_what_was_read_may_be_trimmed_while_the_reader_lags(redis_server: RedisServer) -> None:
    address, client = redis_server.address("s"), redis_server.client
    source = RedisStream(address)
    found, after = list[float](), source.start("start")
    for first in range(0, 60, 6):
        send(address, first, first + 6, 1)
        source._count = 4
        pack = source.read(after, 0.02)
        assert pack.gap is None
        found += EventDecoder(SCHEMA).decode(pack.contents).times.tolist()
        after = pack.position
        client.xtrim("s", minid="{}-{}".format(*after.marks["s"]), approximate=False)
    more, _ = times(source, after)
    assert found + more == list(range(60))


def test_deleted_entries_and_a_stream_made_anew_are_gaps(redis_server: RedisServer) -> None:
    address, client = redis_server.address("s"), redis_server.client
    source = RedisStream(address)
    start = source.start("start")
    send(address, 0, 5, 1)
    numbers = [number for number, _ in client.xrange("s")]
    client.xdel("s", numbers[2], numbers[4])
    pack = source.read(start, 0.02)
    assert "2 entries" in str(pack.gap) and len(pack.contents) == 3
    assert source.read(pack.position, 0.02).gap is None and source.ended(pack.position)
    client.delete("s")
    send(address, 5, 9, 1)
    anew = source.read(pack.position, 0.02)
    assert "made anew" in str(anew.gap) and len(anew.contents) == 4
    assert source.read(anew.position, 0.02).gap is None


def test_what_a_group_has_lost_is_told_until_it_is_accepted(redis_server: RedisServer) -> None:
    address, client = redis_server.address("s") + "?group=g&consumer=a", redis_server.client
    source = RedisStream(address)
    start = source.start("start")
    send(redis_server.address("s"), 0, 20, 1)
    source._count = 5
    one = source.read(start, 0.02)
    assert one.gap is None and len(one.contents) == 5
    client.xtrim("s", maxlen=10, approximate=False)
    for _ in range(2):  # refused, and started again: nothing of it was read meanwhile
        pack = RedisStream(address).read(one.position, 0.02)
        assert "5 entries were trimmed" in str(pack.gap) and not pack.contents
    with source.saving(pack.position):
        pass
    found, after = times(source, pack.position)
    assert found == [float(n) for n in range(10, 20)] and source.ended(after) and source.read(after, 0.02).gap is None
    # Given to the consumer, and gone before it had saved what it learned.
    send(redis_server.address("s"), 20, 23, 1)
    source.read(after, 0.02)
    client.xtrim("s", maxlen=0, approximate=False)
    revived = RedisStream(address)
    gone = revived.read(after, 0.02)
    assert "3 entries were trimmed or deleted after 'a' had read them" in str(gone.gap)
    with revived.saving(gone.position):
        pass
    assert RedisStream(address).read(gone.position, 0.02).gap is None


def test_a_group_deals_entries_out_and_acknowledges_what_is_saved(redis_server: RedisServer) -> None:
    address = redis_server.address("s")
    send(address, 0, 40, 1)
    first, second = (RedisStream(f"{address}?group=g&consumer={name}") for name in "ab")
    start = first.start("start")
    first._count = second._count = 10
    one, other = first.read(start, 0.02), second.read(second.start("start"), 0.02)
    assert len(one.contents) == len(other.contents) == 10
    with first.saving(one.position):
        pass
    assert redis_server.client.xpending("s", "g")["pending"] == 10
    more = first.read(one.position, 0.02)
    # The first is killed: what it had saved does not come again, what it had only read does, and so does nothing of the second's.
    revived = RedisStream(f"{address}?group=g&consumer=a")
    revived._count = 100
    again = revived.read(one.position, 0.02)
    assert again.contents == more.contents
    # Killed after the snapshot, before the acknowledgement: the snapshot knows.
    saved = again.position
    third = RedisStream(f"{address}?group=g&consumer=a")
    learned = times(third, saved)[0]
    assert not set(learned) & set(EventDecoder(SCHEMA).decode(again.contents).times.tolist())
    with third.saving(saved):
        pass
    everything = [*one.contents, *other.contents, *again.contents]
    assert sorted(EventDecoder(SCHEMA).decode(everything).times.tolist() + learned) == list(range(40))


@pytest.mark.parametrize(
    "address", ["redis://h", "redis:///s", "redis://h/s?db=x", "redis://h/s?group=g", "redis://h/s?colour=red"]
)
def test_addresses_that_say_too_little_or_too_much_are_refused(address: str) -> None:
    with pytest.raises(InputError):
        RedisStream(address)


def test_a_server_that_hangs_is_away_and_then_read_on(redis_server: RedisServer) -> None:
    address = redis_server.address("s")
    send(address, 0, 4, 2)
    source = RedisStream(address)
    found, after = times(source, source.start("start"))
    redis_server.pause()
    try:
        assert not source.read(after, 0.02) and "does not answer in time" in str(source.away)
        assert source.lag(after) is None and not source.ended(after)
        with pytest.raises(Away):
            source.start("end")
    finally:
        redis_server.resume()
    send(address, 4, 6, 1)
    assert (found, times(source, after)[0]) == ([0, 1, 2, 3], [4, 5]) and source.away is None


def test_what_a_hanging_server_gave_to_a_group_is_read_and_not_acknowledged_early(redis_server: RedisServer, monkeypatch) -> None:
    monkeypatch.setattr("pbodl.streaming.sources.redis_stream.AGAIN", 0.0)
    address = redis_server.address("s")
    send(address, 0, 10, 1)
    source = RedisStream(f"{address}?group=g&consumer=a")
    source._count = 4
    one = source.read(source.start("start"), 0.02)
    # The answer to this read is lost on its way, after the server has given the entries away.
    redis_server.client.xreadgroup("g", "a", {"s": ">"}, 4)
    redis_server.pause()
    assert not source.read(one.position, 0.02)
    redis_server.resume()
    rest, _ = times_with_gaps(source, one.position)
    assert EventDecoder(SCHEMA).decode(one.contents).times.tolist() + rest == list(range(10))
    assert redis_server.client.xpending("s", "g")["pending"] == 10  # none of it is saved


def times_with_gaps(source: RedisStream, after: StreamPosition) -> tuple[list[float], StreamPosition]:
    """All that a source has, where some reads give nothing."""
    found: list[float] = []
    for _ in range(20):
        pack = source.read(after, 0.02)
        found, after = found + EventDecoder(SCHEMA).decode(pack.contents).times.tolist(), pack.position
    return found, after


def test_what_waiting_does_not_mend_is_an_error_at_once(redis_server: RedisServer, monkeypatch, tmp_path) -> None:
    redis_server.client.set("text", "x")
    for call in (lambda: RedisStream(redis_server.address("text")).start("start"),
                 lambda: RedisStream(redis_server.address("text")).read(StreamPosition(), 0.02),
                 lambda: RedisSink(redis_server.address("text")).send([impression("a", 1.0)])):  # fmt: skip
        with pytest.raises(InputError, match="the key is not a stream"):
            call()
    send(redis_server.address("s"), 0, 3, 1)
    redis_server.client.config_set("requirepass", "hunter2")
    for password in (None, "hunter3"):
        if password is not None:
            monkeypatch.setenv("PBODL_REDIS_PASSWORD", password)
        for call in (lambda: RedisStream(redis_server.address("s")).start("start"),
                     lambda: RedisStream(redis_server.address("s")).read(StreamPosition(), 0.02),
                     lambda: RedisSink(redis_server.address("s")).send([impression("a", 1.0)])):  # fmt: skip
            with pytest.raises(InputError, match="refuses the login") as refused:
                call()
            assert "hunter" not in str(refused.value)
    monkeypatch.setenv("PBODL_REDIS_PASSWORD", "hunter2")
    assert len(RedisStream(redis_server.address("s")).read(StreamPosition(), 0.02).contents) == 3
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("PBODL_REDIS_PASSWORD", "hunter3")
    source = RedisStream(f"{redis_server.address('s')}?password_file={tmp_path / 'password'}")
    assert len(source.read(StreamPosition(), 0.02).contents) == 3


def test_a_server_that_is_not_there_is_away() -> None:
    source = RedisStream("redis://127.0.0.1:1/s")
    for call in (lambda: source.start("start"), lambda: source.start("end")):
        with pytest.raises(Away, match="does not answer"):
            call()
    assert not source.read(StreamPosition(), 0.02) and source.away is not None
    with pytest.raises(Away):
        RedisSink("redis://127.0.0.1:1/s").send([impression("a", 1.0)])

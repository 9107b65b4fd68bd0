"""`pbodl online --engine ray`, as a user runs it: whoever is killed, every event is in the weights once."""

import json
import random
import time
from pathlib import Path

import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.models.snapshot import load_snapshot, snapshots
from pbodl.serving.models.parts_follower import PartsFollower
from pbodl.streaming.cluster.cluster_service import ClusterOptions, online_on_ray
from pbodl.streaming.online_service import Options
from pbodl.streaming.online_service import online as online_in_one_process
from tests.parallel.chaos import Chaos, actors, kill_one
from tests.streaming.cluster.exact_stream import JUDGED_ONCE, check_posterior, closing, exact_config, visits
from tests.streaming.cluster.faults import cut_between, journal_of, no_room
from tests.streaming.cluster.tormented import journalled

JOIN = JUDGED_ONCE


def write_events(folder: Path, events: list[dict], partitions: int) -> None:
    """Append events to the files of the partitions, by their ids."""
    for part in range(partitions):
        (folder / str(part)).mkdir(parents=True, exist_ok=True)
        with (folder / str(part) / "events.jsonl").open("a") as file:
            own = (event for event in events if int(event["id"][1:]) % partitions == part)
            file.writelines(json.dumps(event) + "\n" for event in own)


def options_of(folder: Path, **more) -> Options:
    return Options(str(folder / "events"), folder / "run", JOIN, until_end=True, **more)


def test_a_worker_and_a_shard_are_killed_connections_cut_a_disk_is_full_and_every_event_counts_once(tmp_path):
    events = visits(0, 4000)
    events += closing(events)
    write_events(tmp_path / "events", [*events, {"event": "what", "id": "i0", "time": 1.0}], 3)
    chance, last = random.Random(1), [0]

    def full_disk() -> bool:
        shard = next(iter(actors("ShardActor")), None)
        if shard is None or (own := journal_of(shard, tmp_path / "run")) is None:
            return False
        with no_room(shard, own, 100):
            time.sleep(0.5)
        return True

    strikes = [
        lambda: kill_one("StreamActor", chance), lambda: cut_between(actors("StreamActor"), actors("ShardActor")) > 0,
        lambda: kill_one("ShardActor", chance), full_disk,
    ]  # fmt: skip

    def ready(number: int) -> bool:
        """Whether the shards have written enough since the last strike."""
        if number == len(strikes) or abs(sum(journalled(tmp_path)) - last[0]) < 20_000:
            return False
        last[0] = sum(journalled(tmp_path))
        return True

    published = str(tmp_path / "published")
    with Chaos(ready, lambda number: strikes[number]()) as chaos:
        figures = online_on_ray(
            exact_config(snapshot_every=1.0), options_of(tmp_path, workers=2, publish=published),
            ClusterOptions(shards=2, rows=16, half=False),
        )  # fmt: skip
    assert chaos.strikes == len(strikes)
    ledger = figures["ledger"]
    assert (ledger["sound"], ledger["lost"], ledger["twice"], ledger["dead"]) == (True, 0, 0, 1)
    assert ledger["events"] == len(events) + 1 == ledger["settled"] + ledger["dead"]
    assert (ledger["rows"], figures["rows_learned"]) == (8000, 4000)  # a prediction and a judgement of each
    assert len((tmp_path / "run" / "dead-letters" / "0.jsonl").read_text().splitlines()) == 1
    check_posterior(tmp_path / "run", events)
    newest = snapshots(tmp_path / "run")[-1]
    assert {path.name for path in newest.glob("shard-*")} == {"shard-0.safetensors", "shard-1.safetensors"}
    assert load_snapshot(newest).facts["ledger"] == ledger
    # What a server follows is the same model.
    follower = PartsFollower(published)
    assert follower.poll() and follower.version is not None
    assert follower.version.counters["features"] == 4000
    with pytest.raises(InputError, match="was started with --engine ray"):
        online_in_one_process(exact_config(), options_of(tmp_path))


@pytest.mark.parametrize(
    "changed, cluster, said",
    [
        ({"workers": 4}, {}, r"--workers is 4, and .* has 3 partition\(s\)"),
        ({"speed": 60.0}, {}, "--speed is for replaying a file in one process"),
        ({}, {"shards": 0}, "shards is 0"),
        ({"burn_in": ("nowhere.csv",)}, {}, "nowhere.csv"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_before_anything_is_written(tmp_path, changed, cluster, said):
    write_events(tmp_path / "events", visits(0, 10), 3)
    with pytest.raises(InputError, match=said):
        online_on_ray(exact_config(), options_of(tmp_path)._replace(**changed), ClusterOptions(**cluster))
    assert snapshots(tmp_path / "run") == []


def test_a_run_of_one_process_is_not_continued_by_a_cluster(tmp_path):
    events = visits(0, 10)
    write_events(tmp_path / "events", [*events, *closing(events)], 1)
    one = options_of(tmp_path)._replace(source=str(tmp_path / "events" / "0"))
    online_in_one_process(exact_config(), one)
    assert pbodl.load(tmp_path / "run").rows_learned == 10
    with pytest.raises(InputError, match="was not started with --engine ray"):
        online_on_ray(exact_config(), one, ClusterOptions())

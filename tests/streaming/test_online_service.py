"""`pbodl online` from its options on: sources, publishing, alarms, burn-in, dead letters, /metrics, replay."""

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import pbodl
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.experiments.live import UpSettings, up
from pbodl.models.snapshot import rollback, snapshots
from pbodl.publishing.curves import read
from pbodl.publishing.model_folder import ModelFolder
from pbodl.publishing.publisher import Publisher
from pbodl.streaming.online_service import Options, Pace, online, parse_speed
from pbodl.streaming.sources.event_sink import FileSink
from pbodl.streaming.sources.event_source import Away, Lost, StreamPosition
from pbodl.streaming.sources.followed_files import FollowedFiles
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.system.stop_signals import StopRequest
from pbodl.training.config import to_toml
from pbodl.training.session import Interrupted, train
from tests.command_line import run_pbodl
from tests.commands.disks import fill, small_disk
from tests.ports import free_port
from tests.streaming.traffic import config, decoded, fingerprint, impression, traffic

JOIN = StreamOptions("5m", "20m", 5000)


def write(path: Path, events: list[dict]) -> str:
    sink = FileSink(str(path))
    sink.send(events)
    sink.close()
    return str(path)


def straight(events: list[dict], folder: Path) -> StreamLearner:
    ref = StreamLearner.start(config(), folder / "ref", JOIN, StreamPosition())
    ref.take(decoded(events), StreamPosition())
    return ref


def test_a_file_is_learned_published_and_shown(tmp_path: Path) -> None:
    events = traffic(3000)
    source = write(tmp_path / "events.jsonl", [*events[:50], {"event": "clack"}, *events[50:]])
    options = Options(source, tmp_path / "run", JOIN, publish=str(tmp_path / "model"), until_end=True)
    shown: list[Mapping[str, Any]] = []
    figures = online(config(), options, shown.append)
    assert (shown[-1]["rows_learned"], shown[-1]["bad"]) == (figures["rows_learned"], 1)
    assert max(values["rows_per_second"] for values in shown) > 0 and shown[-1]["away"] is None
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(straight(events, tmp_path).model)
    assert (figures["events"], figures["bad"]) == (len(events), 1)
    letter = json.loads((tmp_path / "run" / "dead-letters.jsonl").read_text())
    assert "its event is 'clack'" in letter["reason"] and "clack" in letter["raw"]
    newest = ModelFolder(tmp_path / "model")
    publication = newest.read(newest.entries()[-1])
    assert publication.manifest.counters["rows_learned"] == figures["rows_learned"]
    assert publication.manifest.facts["events"] == len(events)
    assert shown[-1]["version"] == publication.manifest.version
    assert read(tmp_path / "run")[-1]["rows"] == figures["rows_learned"]
    # Started again, it finds nothing new, and nothing counts twice.
    assert online(config(), options) == figures
    assert len((tmp_path / "run" / "dead-letters.jsonl").read_text().splitlines()) == 1


def test_an_alarm_holds_publishing_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbodl.streaming.watchdog.LEARNING", 1)
    draws = np.random.default_rng(0)
    clicks, users = (draws.random(12_000) < 0.1).tolist(), draws.integers(20, size=12_000).tolist()
    rows = [{"time": float(n), "user": users[n], "ad": n % 5, "click": int(clicks[n])} for n in range(12_000)]
    source = write(tmp_path / "events.jsonl", rows)
    options = Options(source, tmp_path / "run", JOIN, publish=str(tmp_path / "model"), until_end=True)
    assert online(config(), options)["held"] is None
    before = ModelFolder(tmp_path / "model").entries()
    write(tmp_path / "events.jsonl", [{**row, "time": row["time"] + 12_000, "click": 1 - row["click"]} for row in rows[:4000]])
    assert online(config(), options)["held"] is not None
    assert ModelFolder(tmp_path / "model").entries() == before
    assert online(config(), options._replace(release=True))["held"] is None
    assert ModelFolder(tmp_path / "model").entries() != before


def test_history_first_and_then_the_stream(tmp_path: Path) -> None:
    rows = [{"time": float(n), "click": int(n % 7 == 0), "user": n % 11, "ad": n % 5} for n in range(900)]
    history = write(tmp_path / "history.jsonl", rows[:600])
    source = write(tmp_path / "events.jsonl", rows[400:])
    options = Options(source, tmp_path / "run", JOIN, burn_in=(history,), until_end=True)
    online(config(), options)
    ref = config().build()
    ref.learn(rows)
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(ref)


def test_metrics_are_served_on_the_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbodl.streaming.metrics_board.EVERY", 0.0)
    source = write(tmp_path / "events.jsonl", traffic(300))
    port, stop = free_port(), StopRequest()
    monkeypatch.setattr("pbodl.streaming.online_service.stop_signals", lambda: nullcontext(stop))  # signals are the main thread's
    options = Options(source, tmp_path / "run", JOIN, publish=str(tmp_path / "model"), metrics_port=port, speed=300.0)

    def learn() -> None:
        with pytest.raises(Interrupted):
            online(config(), options)

    thread = threading.Thread(target=learn)
    thread.start()
    text = ""
    while thread.is_alive() and "pbodl_online_events_total 3" not in text:
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300).read().decode()
        except OSError:
            time.sleep(0.01)
    stop.note(signal.SIGTERM)
    thread.join()
    names = ("events_total", "late_total", "lag", "event_lag_seconds", "packs_ahead", "events_per_second", "version")
    for name in (*names, 'held{reason=""}'):
        assert f"pbodl_online_{name} " in text, name


def test_the_command_and_the_producer(tmp_path: Path) -> None:
    sent = run_pbodl("data", "replay", "--to", tmp_path / "world.jsonl", "--rows", "400", "--delay", "900")
    assert sent.code == 0, sent.output
    command = ["online", "--source", tmp_path / "world.jsonl", "--out", tmp_path / "run", "--until-end", "--json"]
    done = run_pbodl(*command, "--preset", "synthetic", "--set", "model.dim=2", "--set", "model.hidden=[]")
    assert done.code == 0, done.output
    figures = done.json
    world = sum(int(batch.column("click").to_numpy().sum()) for batch in World(days=1, rows=400).batches())
    assert (figures["impressions"], figures["clicks"]) == (400, world)
    assert figures["positives"] > 0.8 * world and figures["judged"] + figures["waiting"] == 400
    again = run_pbodl(*command)
    assert again.code == 0 and again.json == figures


def test_slips_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a multiple such as 60x"):
        parse_speed("fast")
    with pytest.raises(InputError, match="must be above 0"):
        Pace(0.0)
    with pytest.raises(InputError, match="streams are read from"):
        online(config(), Options("amqp://host/queue", tmp_path / "run"))
    with pytest.raises(InputError, match="--speed is for replaying a file"):
        online(config(), Options("redis://127.0.0.1/s", tmp_path / "run", speed=2.0))
    (tmp_path / "c.toml").write_text(to_toml(config()))
    write(tmp_path / "e.jsonl", [impression("a", 1.0)])
    refused = run_pbodl("online", "--source", tmp_path / "e.jsonl", "--out", tmp_path / "run")
    assert refused.code == 2 and "give --config, or --preset" in refused.prose


def test_a_full_disk_for_publications_and_curves_does_not_end_a_learner(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr("pbodl.streaming.metrics_board.EVERY", 0.0)
    events = traffic(3000)
    source = write(tmp_path / "events.jsonl", events)
    with small_disk(tmp_path / "disk", "256k") as disk:
        filler = fill(disk)
        curves = tmp_path / "run" / "curves.jsonl"
        curves.parent.mkdir()
        curves.symlink_to(disk / "curves.jsonl")
        options = Options(source, tmp_path / "run", JOIN, publish=str(disk), publish_every=0.0, until_end=True)
        figures = online(config(), options)
        assert figures["events"] == len(events) and ModelFolder(disk).entries() == []
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 2 and all("No space left on device" in line and "tries again" in line for line in told)
        assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(straight(events, tmp_path).model)
        filler.unlink()
        online(config(), options)
        newest = ModelFolder(disk).entries()[-1]
        assert ModelFolder(disk).read(newest).manifest.counters["rows_learned"] == figures["rows_learned"]
        assert read(tmp_path / "run")[-1]["rows"] == figures["rows_learned"]


def test_a_run_in_use_is_told_with_its_user(tmp_path: Path) -> None:
    code = "import sys, time, pbodl.system.folder_lock as f; l = f.FolderLock(sys.argv[1], 'pbodl online'); print(1, flush=True)"
    code += "; time.sleep(600)"
    write(tmp_path / "e.jsonl", traffic(500))
    options = Options(str(tmp_path / "e.jsonl"), tmp_path / "run", JOIN, until_end=True)
    online(config(), options)
    online(config(), options)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            for call in (
                lambda: online(config(), options),
                lambda: train(config(), [str(tmp_path / "e.jsonl")], tmp_path / "run"),
                lambda: rollback(tmp_path / "run"),
                lambda: pbodl.load(tmp_path / "run").save(tmp_path / "run"),
                lambda: Publisher(config().build(), tmp_path / "run"),
                lambda: up(UpSettings(str(tmp_path / "run"), 0)),
            ):
                with pytest.raises(InputError, match=rf"`pbodl online`, process {other.pid} on .* stop that first"):
                    call()
            assert pbodl.load(tmp_path / "run").rows_learned > 0  # readers need no lock
        finally:
            other.kill()
    rollback(tmp_path / "run")


def test_a_snapshot_that_the_source_refuses_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbodl.streaming.online_service.AGAIN", 0.0)
    monkeypatch.setattr("pbodl.streaming.online_service.LEAVING", 0.0)
    events, outcomes = traffic(300), ["away", "void", "lost"]
    source = write(tmp_path / "events.jsonl", events)
    seen: list[tuple[str, int]] = []

    @contextmanager
    def saving(self: FollowedFiles, position: StreamPosition) -> Iterator[None]:
        outcome = outcomes.pop(0) if outcomes else "saved"
        if outcome == "away":
            raise Away("the brokers do not answer")
        if outcome == "lost":
            raise Lost("others read it")
        yield
        seen.append((outcome, int(snapshots(tmp_path / "run")[-1].name)))
        if outcome == "void":
            raise Lost("others read it", void=True)

    monkeypatch.setattr(FollowedFiles, "saving", saving)
    options = Options(source, tmp_path / "run", JOIN, until_end=True)
    settings = config()._replace(training=msgspec.structs.replace(config().training, snapshot_every=1e-9))
    figures = online(settings, options)
    assert not outcomes and figures["events"] == len(events)
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(straight(events, tmp_path).model)
    (void, first), (_, second) = seen[:2]
    assert void == "void" and first == second  # the next one took its place
    # At the end, nothing is claimed to be saved that is not.
    write(tmp_path / "events.jsonl", traffic(50, seed=9))
    before = snapshots(tmp_path / "run")
    outcomes += ["away"] * 1000
    with pytest.raises(Away, match="is not saved; it will be read again"):
        online(settings, options)
    assert snapshots(tmp_path / "run") == before


def test_a_gap_stops_the_learner_unless_it_is_accepted(tmp_path: Path) -> None:
    events = traffic(200)
    source = write(tmp_path / "events.jsonl", events[:100])
    options = Options(source, tmp_path / "run", JOIN, until_end=True)
    assert online(config(), options)["gaps"] == 0
    (tmp_path / "events.jsonl").write_text("")  # as copytruncate does
    write(tmp_path / "events.jsonl", events[100:])
    for _ in range(2):
        with pytest.raises(InputError, match=r"has lost events: .* it was cut or replaced.*--accept-gap"):
            online(config(), options)
    figures = online(config(), options._replace(accept_gap=True))
    assert (figures["events"], figures["gaps"]) == (len(events), 1)
    assert online(config(), options)["gaps"] == 1


def test_ten_events_from_the_future_do_not_expire_what_was_learned(tmp_path: Path) -> None:
    settings = config()._replace(model={"dim": 4, "hidden": [8], "time_to_live": "7d"})
    ahead = [impression(f"f{n}", 4e9 + n) for n in range(10)]
    source = write(tmp_path / "events.jsonl", traffic(300))
    options = Options(source, tmp_path / "run", JOIN, until_end=True)
    before = online(settings, options)
    write(tmp_path / "events.jsonl", ahead)
    with pytest.raises(InputError, match="10 events in a row are more than a day ahead of the stream"):
        online(settings, options)
    write(tmp_path / "events.jsonl", [impression("last", 400.0)])
    saved = StreamLearner.resume(settings, tmp_path / "run").metrics()
    assert (saved["features"], saved["expired"], saved["bad"]) == (before["features"], 0, 0)
    assert online(settings, options._replace(accept_gap=True))["gaps"] == 1


def test_another_source_is_refused(tmp_path: Path) -> None:
    options = Options(write(tmp_path / "events.jsonl", traffic(50)), tmp_path / "run", JOIN, until_end=True)
    online(config(), options)
    with pytest.raises(InputError, match="learns from files, and --source is the Redis stream 's'"):
        online(config(), options._replace(source="redis://127.0.0.1:1/s"))


@pytest.mark.parametrize("ending", ["tsv", "csv.gz"])
def test_a_csv_file_without_a_header_has_the_columns_of_the_schema(tmp_path: Path, ending: str) -> None:
    rows = [{"time": float(n), "click": int(n % 7 == 0), "user": n % 11, "ad": n % 5} for n in range(300)]
    named = config()._replace(schema=msgspec.structs.replace(config().schema, columns=list(rows[0])))
    lines = ["\t".join(map(str, row.values())) + "\n" for row in rows]
    options = Options(str(tmp_path / f"log.{ending}"), tmp_path / "run", JOIN, until_end=True)
    if ending == "tsv":  # it grows: the second session continues in the middle, where there is no header to skip either
        Path(options.source).write_text("".join(lines[:100]))
        online(named, options)
        Path(options.source).write_text("".join(lines))
    else:
        Path(options.source).write_bytes(gzip.compress("".join(lines).encode()))
    assert online(named, options)["rows_learned"] == 300
    ref = named.build()
    ref.learn(rows)
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(ref)


def test_a_run_starts_with_a_trained_model_of_the_same_configuration(tmp_path: Path) -> None:
    rows = [{"time": float(n), "click": int(n % 7 == 0), "user": n % 11, "ad": n % 5} for n in range(300)]
    trained = config().build()
    trained.learn(rows[:200])
    trained.save(tmp_path / "trained")
    source = write(tmp_path / "events.jsonl", rows[200:])
    options = Options(source, tmp_path / "run", JOIN, until_end=True, start_from=tmp_path / "trained")
    with pytest.raises(InputError, match="give one of them"):
        online(config(), options._replace(burn_in=(source,)))
    with pytest.raises(InputError, match=r"training\.half_life is '3d'"):
        online(config(half_life="3d"), options)
    online(config(), options)
    trained.learn(rows[200:])
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(trained)
    online(config(), options)  # continues its own run, and does not begin again
    assert fingerprint(pbodl.load(tmp_path / "run")) == fingerprint(trained)

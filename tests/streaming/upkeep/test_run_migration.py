"""`pbodl migrate` on run folders: of training, of a learner that has stopped, and of one that runs, with a server that is asked."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

import pbodl
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.snapshot import load_snapshot, snapshots
from pbodl.publishing.model_folder import DELTA, ModelFolder
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.streaming.upkeep.run_migration import BEFORE, REQUEST, follow_request, migrate, migration_requested, undo
from pbodl.system.folder_lock import writing
from pbodl.training.config import Config, check_config, to_toml
from tests.command_line import run_pbodl
from tests.patience import until
from tests.serving.processes import ServerProcess
from tests.streaming.traffic import decoded, fingerprint, traffic

OLD = [Field("user", group="user"), Field("ad", group="ad"), Field("hour", derive="hour_of_day")]
NEW = [Field("site", optional=True), Field("person", group="user", aliases=["user"]), *OLD[1:]]
JOIN = StreamOptions("5m", "20m", 5000)


def config(fields: list[Field], dim: int = 4, **schema: Any) -> Config:
    about = msgspec.to_builtins(Schema(label="click", time="time", fields=fields, **schema))
    return check_config({"schema": about, "model": {"kind": "pair-fm", "dim": dim}, "training": {}})


def stopped(folder: Path, events: list[dict]) -> StreamLearner:
    """A learner that has learned these events, and has saved; impressions wait for their clicks."""
    learner = StreamLearner.start(config(OLD), folder, JOIN, StreamPosition())
    learner.source = "file"
    learner.take(decoded(events), StreamPosition())
    learner.save()
    return learner


def test_a_stopped_learner_goes_on_with_the_new_schema(tmp_path):
    events, run = traffic(3000), tmp_path / "run"
    learner = stopped(run, events[:2000])
    assert learner.join.metrics()["waiting"] > 0
    before = fingerprint(learner.model)
    with pytest.raises(InputError, match="or change that with `pbodl migrate`"):
        StreamLearner.resume(config(NEW, 6), run)
    told = migrate(run, config(NEW, 6), dry_run=True)
    assert len(told["changes"]) >= 3 and not told["done"] and len(snapshots(run)) == 1 and not (run / BEFORE).exists()
    done = migrate(run, config(NEW, 6))
    assert done["changes"] == told["changes"] and done["largest_difference"] <= 1e-6
    again = StreamLearner.resume(config(NEW, 6), run)
    assert again.join.metrics() == learner.join.metrics()
    later = [{("person" if name == "user" else name): value for name, value in event.items()} for event in events[2000:]]
    for one, name in ((again, "person"), (learner, "user")):
        one.take(decoded(later if name == "person" else events[2000:], one.model.schema), StreamPosition())
    # The same rows were learned, with the same labels; those that waited through the migration among them.
    assert again.model.rows_learned == learner.model.rows_learned
    assert again.join.metrics() == learner.join.metrics()
    assert abs(again.metrics()["log_loss"] - learner.metrics()["log_loss"]) < 1e-3
    assert again.watchdog.held is None
    # Years later there is still a way back.
    for _ in range(5):
        again.save()
    assert undo(run)["snapshot"] == 1
    assert fingerprint(pbodl.load(run)) == before
    assert StreamLearner.resume(config(OLD), run).model.rows_learned < again.model.rows_learned


def test_a_running_learner_is_asked(tmp_path):
    run = tmp_path / "run"
    stopped(run, traffic(500))
    code = (
        "import sys; from pathlib import Path; from pbodl.system.folder_lock import writing\n"
        "from pbodl.streaming.upkeep import run_migration as m; import time\n"
        "run = Path(sys.argv[1])\n"
        "with writing(run, 'pbodl online'):\n"
        "    print('ready', flush=True)\n"
        "    while not m.migration_requested(run): time.sleep(0.05)\n"
        "    m.follow_request(run, None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(InputError, match="cannot be narrowed"):
            migrate(run, config(OLD, 2))  # refused before the learner is asked
        assert migrate(run, config(NEW))["writer"] == "pbodl online"
    assert load_snapshot(run).model.schema == config(NEW).schema
    assert not migration_requested(run)
    # What has become impossible meanwhile is refused, and learning goes on as before.
    with writing(run, "pbodl online"):
        (run / REQUEST).write_text(to_toml(config(NEW, 2)))
        assert follow_request(run, config(NEW)) == config(NEW)
    assert "cannot be narrowed" in (run / "migrate.refused").read_text() and not migration_requested(run)


def test_a_server_waits_for_the_full_snapshot_of_the_new_schema(tmp_path):
    run, folder = tmp_path / "run", tmp_path / "model"
    events = traffic(1600)
    learner, follower = stopped(run, events[:900]), Follower(folder)
    publisher = Publisher(learner.model, folder)
    publisher.publish()
    assert follower.poll()
    publisher.close()
    migrate(run, config(NEW))
    again = StreamLearner.resume(config(NEW), run)
    publisher = Publisher(again.model, folder)
    publisher.publish()
    again.take(decoded(events[900:], config(NEW).schema), StreamPosition())
    publisher.publish()
    newer = [entry for entry in ModelFolder(folder).entries() if entry.version > follower.version.number]
    fulls = {folder / entry.name: (folder / entry.name).read_bytes() for entry in newer if entry.kind != DELTA}
    assert len(fulls) < len(newer)
    for path in fulls:
        path.unlink()
    with pytest.warns(UserWarning, match="waiting for the next full snapshot"):
        assert not follower.poll()  # it finds a delta of the new schema, and lacks what it follows
    assert follower.version.model.schema == config(OLD).schema
    for path, content in fulls.items():
        path.write_bytes(content)
    assert follower.poll() and follower.version.model.schema == config(NEW).schema


def test_a_training_run_by_the_command(tmp_path):
    lines = [f"{i % 7},{i % 5},{i % 3},{int(i % 4 == 0)}" for i in range(600)]
    (tmp_path / "log.csv").write_text("user,ad,site,click\n" + "\n".join(lines))
    base = {"label": "click", "fields": [{"name": "user", "group": "user"}, {"name": "ad", "group": "ad"}]}
    (tmp_path / "old.toml").write_text(to_toml(check_config({"schema": base, "model": {"kind": "pair-fm", "dim": 4}})))
    fields = [*base["fields"], {"name": "site"}]
    new = check_config({"schema": {**base, "fields": fields}, "model": {"kind": "pair-fm", "dim": 8}})
    (tmp_path / "new.toml").write_text(to_toml(new))
    run, log = tmp_path / "run", tmp_path / "log.csv"
    done = run_pbodl("train", log, "--config", tmp_path / "old.toml", "--out", run, "--keep-names")
    assert done.code == 0, done.output
    old = pbodl.load(run)
    done = run_pbodl("migrate", run, "--config", tmp_path / "new.toml", "--json")
    assert done.code == 0, done.output
    found = done.json
    assert found["largest_difference"] <= 1e-6 and any("dim is 8" in line for line in found["changes"])
    rows = [{"user": i % 7, "ad": i % 5} for i in range(35)]
    np.testing.assert_allclose(pbodl.load(run).predict(rows).ctr, old.predict(rows).ctr, atol=1e-6, rtol=0)
    assert run_pbodl("predict", run, log, "--out", tmp_path / "ctr.csv").code == 0
    shown = run_pbodl("inspect", run, "--json")
    assert shown.code == 0 and "user" in shown.output
    for wrong in (["--set", "model.dim=2"], [], ["--config", str(tmp_path / "none.toml")]):
        assert run_pbodl("migrate", run, *wrong).code == 2
    assert run_pbodl("migrate", run, "--undo").code == 0
    assert pbodl.load(run).spec.dim == 4 and "dim = 4" in (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(InputError, match="has not been migrated"):
        undo(tmp_path)


@pytest.mark.slow
def test_a_live_learner_and_a_server_that_is_asked_throughout(tmp_path):
    source, run, model = tmp_path / "events.jsonl", tmp_path / "run", tmp_path / "model"
    events = traffic(20_000)
    lines = [json.dumps(event) + "\n" for event in events]
    source.write_text("".join(lines[:5000]))
    (tmp_path / "old.toml").write_text(to_toml(config(OLD)))
    new = config([*NEW[:2], Field("ad", group="ad")], 6)
    (tmp_path / "new.toml").write_text(to_toml(new))
    cli = [sys.executable, "-m", "pbodl.cli"]
    options = ["--source", str(source), "--out", str(run), "--publish", str(model), "--publish-every", "0.3"]
    learner = subprocess.Popen(
        [*cli, "online", *options, "--config", str(tmp_path / "old.toml"), "--window", "5m", "--late", "20m"]
    )
    failures: list[Any] = []
    versions: list[int] = []
    ended = threading.Event()
    try:
        until(lambda: bool(ModelFolder(model).entries()), "publishing")
        with ServerProcess(model) as server:
            server.wait_until_ready()

            def ask() -> None:
                with httpx.Client(base_url=server.url, timeout=60.0) as client:
                    while not ended.is_set():
                        given = client.post("/v1/score", json={"user": {"user": 3}, "candidates": [{"ad": 1}, {"ad": 2}]})
                        if given.status_code != 200 or len(given.json()["ctr"]) != 2:
                            failures.append(given.text)
                        versions.append(given.json().get("model", -1))

            asking = threading.Thread(target=ask)
            asking.start()
            with source.open("a") as file:
                file.writelines(lines[5000:9000])
            time.sleep(1.0)
            done = run_pbodl("migrate", run, "--config", tmp_path / "new.toml", "--json")
            assert done.code == 0, done.err
            later = [{("person" if name == "user" else name): value for name, value in event.items()} for event in events[9000:]]
            with source.open("a") as file:
                file.writelines(json.dumps({**event, "site": n % 3}) + "\n" for n, event in enumerate(later))
            with httpx.Client(base_url=server.url, timeout=60.0) as client:
                names = ["site", "person", "ad"]
                until(lambda: [f["name"] for f in client.get("/v1/model").json()["schema"]["fields"]] == names, "the new schema")
                first = client.get("/v1/model").json()["version"]
                until(lambda: client.get("/v1/model").json()["version"] > first, "a delta")
                asked = {"user": {"person": 3}, "context": {"site": 1}, "candidates": [{"ad": 1}]}
                assert client.post("/v1/score", json=asked).status_code == 200
            ended.set()
            asking.join()
    finally:
        ended.set()
        learner.terminate()
        learner.wait()
    assert failures == [] and len(set(versions)) > 2
    assert load_snapshot(run).model.schema == new.schema

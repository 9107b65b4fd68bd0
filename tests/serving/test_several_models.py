"""A server of several models as it is: added and removed by a file, one that fails, and decisions that a learner joins."""

import json
import time

import httpx
import pytest

import pbodl
from pbodl.models.snapshot import load
from pbodl.serving import Client
from tests.command_line import run_pbodl
from tests.patience import PATIENCE, until
from tests.serving.processes import ServerProcess

SCHEMA = pbodl.Schema(
    label="click",
    time="time",
    fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad"), pbodl.Field("slot", kind="position")],
)
ADS = [{"ad": f"ad{n}"} for n in range(4)]
BODY = {"user": {"user": 1}, "candidates": ADS}


class SeveralModels(ServerProcess):
    """A server of a file of models."""

    def __init__(self, file, *options: str) -> None:
        super().__init__(f"--models={file}", *options)


def plan(file, text: str) -> None:
    """Write the file of models as a whole, as an editor does."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, better in (("a", "ad1"), ("b", "ad2")):
        model = pbodl.PairFM(SCHEMA, dim=2)
        rows = [{"user": n % 3, "ad": f"ad{n % 4}", "slot": 1, "time": 1e9 + n} for n in range(400)]
        model.learn([{**row, "click": int(row["ad"] == better)} for row in rows])
        model.save(folder / name)
    return folder


def test_models_come_and_go_and_one_that_fails_harms_no_other(runs, tmp_path, monkeypatch):
    file, log = tmp_path / "models.toml", tmp_path / "log" / "decisions.jsonl"
    plan(file, f'[models]\na = "{runs}/a"\n')
    with SeveralModels(file, "--log-decisions", str(log)) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        first = client.post("/v1/models/a/score", json=BODY).json()
        answered, failed = 0, []

        def others_go_on() -> None:
            nonlocal answered
            response = client.post("/v1/score", json=BODY)
            answered += 1
            if response.status_code != 200 or response.json()["ctr"] != first["ctr"]:
                failed.append(response.text)

        # A folder that holds no model, one that holds rubbish, and a good one, added beside `a`.
        (tmp_path / "empty").mkdir()
        (tmp_path / "rubbish" / "snapshots" / "000000000001").mkdir(parents=True)
        (tmp_path / "rubbish" / "snapshots" / "000000000001" / "manifest.json").write_text("{")
        more = f'empty = "{tmp_path}/empty"\nrubbish = "{tmp_path}/rubbish"\nb = "{runs}/b"\nnone = "{tmp_path}/none"\n'
        plan(file, f'shadow = ["b", "empty"]\n[models]\na = "{runs}/a"\n{more}')

        def added() -> bool:
            others_go_on()
            return client.post("/v1/models/b/score", json=BODY).status_code == 200

        until(added, "adding a model")
        assert client.post("/v1/models/empty/score", json=BODY).status_code == 503
        assert client.post("/v1/models/rubbish/score", json=BODY).status_code == 503
        assert client.post("/v1/models/none/score", json=BODY).status_code == 404

        # Decisions, with the shadow's scores, and clicks that a learner joins with them.
        with Client(server.url, timeout=PATIENCE) as ours:
            ids = []
            for number in range(12):
                told = ours.rank({"user": number % 3}, {}, ADS, policy="epsilon", epsilon=0.5, slots=2, request_id=f"r{number}")
                assert told.name == "a"
                assert len(told.candidates) == 2
                ids += told.ids
        until(lambda: log.exists() and len(log.read_text().splitlines()) == 24, "logging")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        assert sorted(event["id"] for event in events) == sorted(ids)
        assert {event["slot"] for event in events} == {1, 2}  # where it was shown, not where it was compared
        assert any("b" in event["decision"].get("shadow", {}) for event in events)
        clicks = [{"event": "click", "id": name, "time": time.time() + 1.0} for name in ids[::3]]
        # Half an hour later there are others, so that the first ones are old enough to be judged.
        later = [event | {"id": f"later{number}", "time": time.time() + 1800.0} for number, event in enumerate(events[:12])]
        clicks += [{"event": "click", "id": event["id"], "time": event["time"] + 1.0} for event in later]
        with open(log, "a") as more_events:
            more_events.writelines(json.dumps(event) + "\n" for event in [*clicks[:8], *later, *clicks[8:]])

        plan(file, "[models")  # a slip leaves all as it is
        until(lambda: "the models stay as they are" in server.log(), "telling of the slip")
        others_go_on()
        plan(file, f'[models]\na = "{runs}/a"\n[split]\na = 1.0\n')
        until(lambda: client.post("/v1/models/b/score", json=BODY).status_code == 404, "removing a model")
        until(lambda: client.post("/v1/score", json=BODY).status_code == 422, "the split")
        assert client.post("/v1/score", json=BODY | {"split_key": "u1"}).json()["ctr"] == first["ctr"]
        assert not failed, failed[0]
        assert answered > 1
        assert "not served" in server.log()

    config = tmp_path / "config.toml"
    fields = "".join(
        f'[[schema.fields]]\nname = "{field.name}"\ngroup = "{field.group}"\nkind = "{field.kind}"\n' for field in SCHEMA.fields
    )
    config.write_text(f'[schema]\nlabel = "click"\ntime = "time"\n{fields}\n[model]\nkind = "pair-fm"\ndim = 2\n')
    learned = run_pbodl("online", "--source", log, "--config", config, "--out", tmp_path / "live", "--until-end")
    assert learned.code == 0, learned.err
    assert load(tmp_path / "live").metrics()["rows_learned"] >= 24
    assert not (tmp_path / "live" / "dead-letters.jsonl").exists() or not (tmp_path / "live" / "dead-letters.jsonl").read_text()

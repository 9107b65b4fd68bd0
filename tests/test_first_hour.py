"""The first hour of a new user, from the wheel to a served model, as one script without a single edit by hand.

The environment is new and has the wheel alone, with its extra `serve`; libraries come from a package registry, or, where none can
be reached, from the tests' environment. The cache of compiled code is new as well. The log is a TSV file without a header, with
integers and a list column.
"""

import http.client
import json
import random
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from tests.pages import ROOT
from tests.wheels import NewEnvironment, build_package, install_alone, new_environment

COLUMNS = ["click", "time", "user_id", "age", "interests", "site", "ad_id", "topic", "bid"]
TOPICS = ["cars", "games", "music", "travel"]
ROWS, LATER = 20_000, 300_000
PATIENCE = 1800.0  # seconds for one command, on a busy machine that compiles


def log_lines(rows: int, seed: int) -> Iterator[str]:
    """Users click on ads about their two interests with a probability of 30 %, on others with 5 %."""
    draws = random.Random(seed)
    interests = [draws.sample(TOPICS, 2) for _ in range(400)]
    for n in range(rows):
        user, ad, topic = draws.randrange(400), draws.randrange(40), ""
        topic = TOPICS[ad % 4]
        click = int(draws.random() < (0.30 if topic in interests[user] else 0.05))
        liked = "|".join(interests[user])
        values = [click, 1735689600 + 4 * n, user, 18 + user % 50, liked, f"site{n % 5}", ad, topic, draws.randrange(1, 9000)]
        yield "\t".join(map(str, values)) + "\n"


class Terminal:
    """A user's terminal: an environment, a folder, and commands typed into it."""

    def __init__(self, environment: NewEnvironment, folder: Path) -> None:
        self.environment, self.folder = environment, folder
        self.variables = environment.variables | {
            "PBODL_CACHE": str(folder / "cache"),
            "PATH": f"{environment.programs}:/usr/bin:/bin",
        }
        self.variables.pop("NUMBA_CACHE_DIR", None)

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """A line for the shell; it must succeed."""
        done = self.start(line, shell=True)
        out, err = done.communicate(timeout=PATIENCE)
        assert done.returncode == 0, f"$ {line}\n{out}{err}"
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(line, done.returncode, out, err)

    def json(self, line: str) -> Any:
        """The JSON object that a line prints last."""
        return json.loads(self.type(f"{line} --json").stdout.splitlines()[-1])

    def start(self, line: str, shell: bool = False) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = line if shell else [str(self.environment.programs / "pbodl"), *shlex.split(line)[1:]]
        return subprocess.Popen(words, shell=shell, cwd=self.folder, env=self.variables, **pipes)

    @contextmanager
    def server(self, line: str) -> Iterator[Callable[[dict], dict]]:
        """What answers score requests while a server runs."""
        process = self.start(line)
        try:
            assert process.stderr is not None
            told = ""
            while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", told)):
                part = process.stderr.readline()
                assert part, told + str(process.wait())
                told += part

            def score(request: dict) -> dict:
                connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
                connection.request("POST", "/v1/score", json.dumps(request), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status == 200, body
                return json.loads(body)

            yield score
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    (wheel,) = build_package(tmp_path_factory.mktemp("dist")).glob("*.whl")
    environment = new_environment(tmp_path_factory.mktemp("new") / "environment")
    command = [environment.programs / "python", "-m", "pip", "--retries", "1", "install", "--quiet"]
    lock = ROOT / "requirements.lock"
    done = subprocess.run([*command, "-c", lock, f"{wheel}[serve]"], env=environment.variables, capture_output=True, text=True)
    if done.returncode:
        print("libraries from the tests' environment, as no registry answers:", done.stderr)
        install_alone(wheel, environment)
    return Terminal(environment, tmp_path_factory.mktemp("home"))


@pytest.mark.slow
def test_the_first_hour(terminal: Terminal) -> None:
    home = terminal.folder
    (home / "log.tsv").write_text("".join(log_lines(ROWS, seed=1)))
    (home / "more.tsv").write_text("".join(log_lines(LATER, seed=2)))
    origin = Path(terminal.type("python -c 'import pbodl; print(pbodl.__file__)'").stdout.strip())
    assert origin.is_relative_to(terminal.environment.library)

    # Guess: integers with many values are numbers, lists are lists, users and ads have their groups.
    terminal.type(f"pbodl data inspect log.tsv --columns {','.join(COLUMNS)} > config.toml")
    guessed = (home / "config.toml").read_text()
    fields = dict(re.findall(r'\[\[schema\.fields\]\]\nname = "(\w+)"(.*?)(?=\n\n|\Z)', guessed, flags=re.DOTALL))
    assert 'kind = "multi"' in fields["interests"] and 'kind = "number"' in fields["bid"] and 'kind = "number"' in fields["age"]
    assert all('group = "ad"' in fields[name] for name in ("ad_id", "topic"))
    assert all('group = "user"' in fields[name] for name in ("user_id", "age", "interests"))

    # Train, compare, tune, and train with what was found.
    first = terminal.type("pbodl train log.tsv --config config.toml --out runs/first --json")
    assert "compiles once" in first.stderr
    summary = json.loads(first.stdout.splitlines()[-1])
    assert summary["rows"] == ROWS and summary["ne"] < 0.97
    compared = terminal.json("pbodl compare log.tsv --config config.toml --models pair-fm,ftrl --out results")
    assert {"pair-fm", "ftrl"} <= set(re.findall(r"pair-fm|ftrl", json.dumps(compared)))
    assert (home / "results" / "report.html").is_file()
    tuned = terminal.json("pbodl tune log.tsv --config config.toml --trials 3 --rows 10000 --out tuned.toml")
    assert tuned["trials"] >= 3 and tuned["log_loss"] < 0.5
    again = terminal.json("pbodl train log.tsv --config tuned.toml --out runs/tuned")
    assert again["log_loss"] < summary["log_loss"] + 0.01

    # Explain one prediction.
    row = dict(zip(COLUMNS, (home / "log.tsv").read_text().splitlines()[-1].split("\t"), strict=True))
    row |= {name: int(row[name]) for name in ("time", "age", "bid")} | {"interests": row["interests"].split("|")}
    (home / "row.json").write_text(json.dumps(row))
    explained = terminal.json("pbodl inspect runs/tuned --explain row.json")
    assert "topic" in json.dumps(explained) and "interests" in json.dumps(explained)

    # Serve and score: the server ranks, and answers what the command predicts.
    (home / "last.tsv").write_text((home / "log.tsv").read_text().splitlines(keepends=True)[-1])
    terminal.type("pbodl predict runs/tuned last.tsv --out last.csv")
    expected = pyarrow.csv.read_csv(home / "last.csv")["ctr"][0].as_py()
    user = {name: row[name] for name in ("user_id", "age", "interests")}
    own = {name: row[name] for name in ("ad_id", "topic", "bid")}
    liked = {"ad_id": "0", "topic": row["interests"][0], "bid": 100}
    disliked = {"ad_id": "1", "topic": next(topic for topic in TOPICS if topic not in row["interests"]), "bid": 100}
    context = {"site": row["site"], "time": row["time"]}
    with terminal.server("pbodl serve runs/tuned --port 0") as score:
        answer = score({"user": user, "context": context, "candidates": [own, liked, disliked]})
    assert answer["ctr"][0] == pytest.approx(expected, rel=1e-4)
    assert answer["ctr"][1] > answer["ctr"][2] and min(answer["std"]) > 0

    # Kill a training in the middle, resume it, and get the same model as without the kill.
    training = "pbodl train more.tsv --config tuned.toml --out runs/killed --set training.snapshot_every=0.05"
    process = terminal.start(training)
    while not list((home / "runs" / "killed").glob("snapshots/0*/manifest.json")) and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    resumed = terminal.json(f"{training} --resume")
    whole = terminal.json("pbodl train more.tsv --config tuned.toml --out runs/whole")
    assert (resumed["rows"], resumed["log_loss"]) == (whole["rows"], whole["log_loss"])
    for run in ("killed", "whole"):
        terminal.type(f"pbodl predict runs/{run} log.tsv --out {run}.csv")
    assert (home / "killed.csv").read_bytes() == (home / "whole.csv").read_bytes()

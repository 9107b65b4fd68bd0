"""Whatever a person types and whatever a disk does: a sentence and an exit code, never a traceback."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

import pbodl.experiments.ab.ab_experiment  # while this process may still write to its cache
import pbodl.experiments.live
from pbodl.models.snapshot import load, snapshots
from pbodl.training.config import to_toml
from tests.command_line import run_pbodl
from tests.commands.disks import as_nobody, fill, make_read_only, small_disk
from tests.training.logs import small_config, write_log

HUGE = "1" + "0" * 30
LOGS = ("log.parquet", "next.parquet", "more.parquet")


@pytest.fixture
def pbodl(monkeypatch, tmp_path):
    """Runs a command in a folder with a log and its configuration; checks that it ends with prose, and returns code and text."""
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text(to_toml(small_config()), encoding="utf-8")
    write_log(Path("log.parquet"), 300)

    def run(*arguments: str) -> tuple[int, str]:
        done = run_pbodl(*arguments)
        code, err = done.code, done.err
        assert code in (0, 1, 2), (arguments, err)
        assert "Traceback" not in err and "is a bug" not in err, (arguments, err)
        if code:
            assert err.lower().count("error") >= 1, (arguments, err)
        return code, done.prose

    return run


# For every option some values that are wrong, or that name what is not there.
PORTS = ("-1", "65536", "99999", "0x50", "eighty", HUGE, "8080.5", "")
COUNTS = ("0", "-1", "many", "1.5", "nan", HUGE)
SECONDS = ("-1", "nan", "inf", "-inf", "soon", "")
SOURCES = (
    "redis://", "redis://h", "redis://127.0.0.1:99999/s", "redis://127.0.0.1:-1/s", "redis://[::1/s", "redis://h/s?db=-1",
    "redis://h/s?db=" + HUGE, "redis://h/s?colour=red", "redis://h/s?group=g", "redis://:pw@h/s", "redis://h/s?password_file=none",
    "kafka://", "kafka://h:9092", "kafka://h:99999/t", "kafka://h:0/t", "kafka://h:x/t", "kafka://h/t?no.such.option=1",
    "kafka://h/t?session.timeout.ms=soon", "kafka://h/t?sasl.password=pw", "kafka://h/t?options_file=none",
    "kafka://h/t?security.protocol=magic", "amqp://h/q", "none.jsonl", "none/", "", "log.parquet\x01",
)  # fmt: skip
TRAIN = ("train", "log.parquet", "--config", "config.toml", "--out", "new")
ONLINE = ("online", "--config", "config.toml", "--out", "new")
STREAM = (*ONLINE, "--source", "log.parquet", "--until-end")
REPLAY = ("data", "replay", "--rows", "10")
SERVE, UP = ("serve", "."), ("up", "--out", "new")
SYNTH = ("data", "synth", "--out", "new.csv")
TABLE1 = ("experiment", "table1", "log.parquet", "--config", "config.toml", "--out", "new")
AB = ("experiment", "ab", "--out", "new")
TUNE = ("tune", "log.parquet", "--config", "config.toml", "--out", "new.toml")
COMPARE = ("compare", "log.parquet", "--config", "config.toml", "--out", "new")
SETTINGS = (
    "model.dim=0", "model.dim=-3", "model.dim=x", "model.hidden=[0]", "model.hidden=5", "model.capacity=-1", "model.kind=none",
    "training.half_life=soon", "training.half_life=-1d", "training.negative_rate=0", "training.negative_rate=nan",
    "training.snapshot_every=x", "training.every=never", "schema.label=", "schema.fields=[]", "no.such.key=1", "=", "model.dim",
    "model.prior.embedding=-1", "model.step_cap=0",
)  # fmt: skip
BAD: list[tuple[str, ...]] = [
    *((*base, value) for base in ((*SERVE, "--port"), (*UP, "--port"), (*STREAM, "--metrics-port")) for value in PORTS),
    *(
        (*base, option, value)
        for base, option in (
            (TRAIN, "--workers"), (TRAIN, "--shards"), (TRAIN, "--minibatch"), (STREAM, "--workers"), (STREAM, "--join-capacity"),
            (SERVE, "--workers"), (SERVE, "--max-candidates"), (SERVE, "--max-body"), (SERVE, "--max-concurrent"), (UP, "--rows"),
            (SYNTH, "--rows"), (SYNTH, "--days"), ((*REPLAY, "--to", "new.jsonl"), "--pack"), (TUNE, "--rows"), (TUNE, "--trials"),
            (COMPARE, "--rows"), (COMPARE, "--tune-rows"),
            (TABLE1, "--test-days"), (TABLE1, "--seeds"), (TABLE1, "--trials"), (TABLE1, "--tune-rows"), (AB, "--days"),
            (AB, "--seeds"), (AB, "--ads"), (AB, "--requests-per-day"), (AB, "--workers"),
        )
        for value in COUNTS
    ),
    *(
        (*base, option, value)
        for base, option in (
            (SERVE, "--timeout"), (UP, "--rate"), (STREAM, "--publish-every"), ((*REPLAY, "--to", "new.jsonl"), "--delay"),
        )
        for value in SECONDS
    ),
    *((*ONLINE, "--source", source) for source in SOURCES),
    *((*REPLAY, "--to", source) for source in SOURCES if source not in ("none/", "none.jsonl")),
    *((*STREAM, "--dead-letters", source) for source in SOURCES if "://" in source),
    *((*TRAIN, "--set", setting) for setting in SETTINGS),
    *((*STREAM, "--speed", value) for value in ("0", "-1x", "nan", "inf", "fast", "x")),
    *((*STREAM, "--window", value) for value in ("0s", "-5m", "soon", "10k rows")),
    *((*STREAM, option, "x") for option in ("--ages", "--skew", "--begin", "--merge", "--late", "--burn-in", "--model")),
    *((*SERVE, "--host", host) for host in ("no.such.host.invalid", "999.1.1.1", "", "a" * 300, "\x00")),
    *((*SERVE, "--token-file", path) for path in ("none", ".", "empty")),
    ("serve", "none"), ("serve", "s3://"), ("serve", "s3://k:pw@b/m"), ("serve", "ftp://h/m"), ("serve", "log.parquet"),
    *((command, "none", *rest) for command, *rest in (["evaluate", "log.parquet"], ["inspect"], ["rollback"])),
    ("train", ":x:.csv", "--config", "config.toml", "--out", "new"), ("data", "inspect", ":x:.csv"), ("data", "inspect", "s3://k:pw@b/m"),
    ("data", "synth", "--rows", "10", "--out", "new.txt"), ("data", "synth", "--rows", "10", "--out", "no/such/folder/new.csv"),
    ("data", "synth", "--rows", "10", "--seed", "-1", "--out", "new.csv"), ("nothing",), ("--nothing",), ("train", "--nothing"),
    ("predict", "none", "log.parquet", "--out", "ctr.txt"), (*AB, "--rank-by", "luck"), (*TRAIN, "--engine", "magic"),
    (*TRAIN, "--wire-bits", "7"), (*TRAIN, "--shard-timeout", "nan"), (*TRAIN, "--engine", "ray", "--shard-timeout", "0"),
    (*TRAIN, "--burn-in", "soon"), (*TRAIN, "--bad-rows", "eat"), (*TRAIN, "--preset", "none"),
]  # fmt: skip


def test_there_are_enough_of_them():
    assert len(set(BAD)) >= 300


@pytest.mark.parametrize("part", range(8))
def test_bad_arguments_end_in_prose(pbodl, part):
    Path("empty").write_bytes(b"")
    for arguments in itertools.islice(BAD, part, None, 8):
        code, told = pbodl(*arguments)
        assert code in (1, 2), (arguments, told)
        assert "pw" not in told and "❌" not in told, (arguments, told)
        if not snapshots("new"):
            continue
        assert "--dead-letters" in arguments, arguments  # a new run is saved before its first event
        shutil.rmtree("new")


def test_emoji_stay_what_was_typed(pbodl):
    assert ":x:.csv" in pbodl("train", ":x:.csv", "--config", "config.toml", "--out", "new")[1]


def test_debug_shows_the_traceback(pbodl):
    with pytest.raises(ValueError, match="none holds no snapshot"):
        run_pbodl("--debug", "inspect", "none")
    assert pbodl("inspect", "none")[0] == 2


def writers(folder: str) -> list[tuple[str, ...]]:
    """Every command that writes, into a folder; a run stands in `folder/run`."""
    small = ("--trials", "1", "--rows", "100")
    return [
        ("train", "log.parquet", "--config", "config.toml", "--out", f"{folder}/new"),
        ("train", *LOGS, "--out", f"{folder}/run", "--resume"),
        ("evaluate", f"{folder}/run", "log.parquet", "--bad-rows", "skip", "--bad-rows-file", f"{folder}/bad.jsonl"),
        ("predict", f"{folder}/run", "log.parquet", "--out", f"{folder}/ctr.parquet"),
        ("predict", f"{folder}/run", "log.parquet", "--out", f"{folder}/ctr.csv"),
        ("rollback", f"{folder}/run"),
        ("tune", "log.parquet", "--config", "config.toml", *small, "--out", f"{folder}/tuned.toml"),
        ("compare", "log.parquet", "--config", "config.toml", "--models", "ftrl", "--out", f"{folder}/compare"),
        ("online", "--source", "log.parquet", "--config", "config.toml", "--until-end", "--out", f"{folder}/live"),
        ("up", "--out", f"{folder}/up", "--port", "0"),
        ("data", "synth", "--rows", "20000", "--out", f"{folder}/world.csv"),
        ("data", "replay", "--rows", "20000", "--to", f"{folder}/events.jsonl"),
        ("experiment", "table1", "log.parquet", "--config", "config.toml", "--out", f"{folder}/t", "--trials", "1", "--seeds", "1"),
        ("experiment", "ab", "--out", f"{folder}/ab", "--days", "1", "--seeds", "1"),
    ]


@pytest.fixture
def with_run(pbodl):
    """The same, with a run of two snapshots in disk/run, where `disk` is a small disk."""
    write_log(Path("next.parquet"), 50, seed=3)
    write_log(Path("more.parquet"), 250, seed=4)
    with small_disk(Path("disk"), "2m"):
        assert pbodl("train", "log.parquet", "--config", "config.toml", "--out", "disk/run")[0] == 0
        assert pbodl("train", "log.parquet", "next.parquet", "--out", "disk/run", "--resume")[0] == 0
        yield pbodl


def readable(pbodl, folder: str) -> None:
    """What only reads works on such a disk."""
    assert pbodl("inspect", f"{folder}/run")[0] == 0
    assert pbodl("evaluate", f"{folder}/run", "log.parquet")[0] == 0
    assert load(f"{folder}/run").rows_learned == 350


def test_every_command_on_a_read_only_disk(with_run):
    make_read_only(Path("disk"))
    for arguments in writers("disk"):
        code, told = with_run(*arguments)
        assert code in (1, 2) and "read-only" in told.lower(), (arguments, told)
        assert "disk/" in told, (arguments, told)
    readable(with_run, "disk")


def test_every_command_on_a_full_disk(with_run):
    before = snapshots("disk/run")
    fill(Path("disk"))
    for arguments in writers("disk"):
        if arguments[0] not in ("up", "rollback", "experiment", "evaluate"):  # they write nothing, or much later
            code, told = with_run(*arguments)
            assert code == 1 and "space" in told, (arguments, told)
    # The last snapshot is named, and intact; with space again, the run continues.
    code, told = with_run("train", *LOGS, "--out", "disk/run", "--resume")
    assert code == 1 and str(before[-1]) in told and "is intact; continue with --resume" in told
    assert snapshots("disk/run") == before
    readable(with_run, "disk")
    Path("disk/filler").unlink()
    assert with_run("train", *LOGS, "--out", "disk/run", "--resume")[0] == 0
    assert load("disk/run").rows_learned == 600
    assert not list(Path("disk/run").rglob(".writing*"))


def test_every_command_without_permission(pbodl):
    os.chmod(".", 0o755)
    write_log(Path("next.parquet"), 50, seed=3)
    write_log(Path("more.parquet"), 250, seed=4)
    assert pbodl("train", "log.parquet", "--config", "config.toml", "--out", "disk/run")[0] == 0
    assert pbodl("train", "log.parquet", "next.parquet", "--out", "disk/run", "--resume")[0] == 0
    for path in [*Path().rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in Path.cwd().parents:
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o011)
    try:
        with as_nobody():
            for arguments in writers("disk"):
                code, told = pbodl(*arguments)
                assert code in (1, 2) and "permission" in told.lower(), (arguments, told)
            readable(pbodl, "disk")
        Path("log.parquet").chmod(0o000)
        Path("config.toml").chmod(0o000)
        with as_nobody():
            for arguments in (
                ("data", "inspect", "log.parquet"),
                ("evaluate", "disk/run", "log.parquet"),
                ("train", "log.parquet", "--config", "config.toml", "--out", "elsewhere"),
                ("serve", "disk/run", "--token-file", "config.toml"),
            ):
                code, told = pbodl(*arguments)
                assert code in (1, 2) and "permission" in told.lower(), (arguments, told)
    finally:
        for path in [*Path().rglob("*")]:
            path.chmod(0o755)

"""Disks that are full after a drawn number of bytes: the last snapshot loads, and the run goes on when there is space again."""

import random
from pathlib import Path

import pbodl
from pbodl.models.snapshot import load_snapshot, snapshots
from pbodl.streaming.online_service import Options, online
from pbodl.streaming.sources.event_sink import FileSink
from pbodl.system.failures import report
from tests.campaign import Finding
from tests.commands.disks import fill, small_disk
from tests.streaming.test_online_service import JOIN, straight
from tests.streaming.traffic import config, fingerprint, traffic
from tests.training.test_resume import Log


def training(root: Path, seed: int = 1, attempts: int = 25) -> Finding:
    draws, log, full = random.Random(seed), Log(root), 0
    for attempt in range(attempts):
        with small_disk(root / f"disk{attempt}", "4m") as disk:
            run = disk / "run"
            filler = fill(disk, draws.randrange(200_000))
            try:
                log.train(run)
            except OSError as error:
                full += 1
                _check_prose(error, run)
            filler.unlink()
            if not snapshots(run) or load_snapshot(run).facts["rows"] < load_snapshot(log.ref).facts["rows"]:
                log.train(run, bool(snapshots(run)))
            log.assert_same(run)
            assert not list(run.rglob(".writing*"))
    return Finding("`pbodl train`", attempts, f"{full} ended in prose with the last snapshot named; all went on to the same bits")


def _check_prose(error: OSError, run: Path) -> None:
    told, code = report(error)
    assert code == 1 and "No space left on device" in told
    if found := snapshots(run):
        assert str(found[-1]) in told
        load_snapshot(found[-1])


def learning_live(root: Path, seed: int = 2, attempts: int = 12) -> Finding:
    draws, events, full = random.Random(seed), traffic(1500), 0
    sink = FileSink(str(root / "events.jsonl"))
    sink.send(events)
    sink.close()
    ref = fingerprint(straight(events, root).model)
    settings = config(snapshot_every=0.0)
    for attempt in range(attempts):
        with small_disk(root / f"disk{attempt}", "4m") as disk:
            options = Options(str(root / "events.jsonl"), disk / "run", JOIN, publish=str(disk / "models"), until_end=True)
            options = options._replace(publish_every=0.0)
            filler = fill(disk, draws.randrange(600_000))
            try:
                online(settings, options)
            except OSError as error:
                full += 1
                _check_prose(error, disk / "run")
            filler.unlink()
            online(settings, options)
            assert fingerprint(pbodl.load(disk / "run")) == ref
    return Finding("`pbodl online`", attempts, f"{full} ended in prose with the last snapshot named; all went on to the same bits")


PARTS = (training, learning_live)

"""Looks at a run folder, and tells in plain words what is wrong with it.

It only reads. A finding is a problem, which needs a person, or a note. Every finding says what was seen and what to do.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pbodl.errors import InputError
from pbodl.models.deep_probit import COUNTERS
from pbodl.models.snapshot import Snapshot, load_snapshot, snapshots
from pbodl.publishing.curves import CurveReader
from pbodl.publishing.model_folder import FULL, ModelFolder
from pbodl.publishing.parts_manifest import newest_parts
from pbodl.publishing.watch_file import read_watch
from pbodl.streaming.upkeep.run_migration import BEFORE, REFUSED, REQUEST, writer_of
from pbodl.training.display import moment

PROBLEM, NOTE = "problem", "note"
PUBLISHED = "published"  # the model folder inside a run folder
SILENT = 120.0  # seconds without a new figure after which a running learner hangs
STALE = 600.0  # seconds: a snapshot or a publication of a running learner should be younger
LEVEL = 0.1  # by how much predicted and observed clicks may differ ...
SIGMAS = 4.0  # ... beyond chance
DRIFTED, OFTEN_NEW = 0.25, 0.3
TOO_SURE = 3.0  # martingale ratio
BAD_SHARE, REJECTED_SHARE = 0.01, 0.001
SPARE_SNAPSHOTS = 3.0  # free disk space, in snapshots


class Finding(NamedTuple):
    """Something about a run."""

    kind: str  # PROBLEM or NOTE
    about: str  # in one word
    told: str


def examine(run: Path, published: str | None = None) -> list[Finding]:
    """All findings about a run, problems first. `published` is the model folder that it publishes to, if not inside the run."""
    if not run.is_dir():
        raise InputError(f"{run} is not a folder; give the folder that `pbodl train --out` or `pbodl online --out` wrote")
    if not snapshots(run):
        raise InputError(f"{run} holds no snapshot; give the folder that `pbodl train --out` or `pbodl online --out` wrote")
    writer = writer_of(run)
    findings = [*_snapshots(run), *_leftovers(run), *_disk(run)]
    try:
        newest = load_snapshot(run)
    except InputError as error:
        findings.append(Finding(PROBLEM, "snapshots", f"{error}. Restore the folder from a backup, or start a new run"))
        return findings
    online = newest.facts.get("online")
    findings += _model(newest)
    if online is not None:
        findings += [*_learner(run, writer, newest), *_alarms(online), *_events(run, online)]
    point = _last_point(run)
    findings += [*_level(point), *_watched(run)]
    findings += _publications(published or run / PUBLISHED, writer is not None, asked=published is not None)
    return sorted(findings, key=lambda finding: finding.kind != PROBLEM)


def _snapshots(run: Path) -> Iterator[Finding]:
    for path in snapshots(run):
        try:
            load_snapshot(path)
        except InputError as error:
            told = f"{error}. The one before it is used; delete the damaged folder, and check the disk"
            yield Finding(PROBLEM, "snapshots", told)


def _leftovers(run: Path) -> Iterator[Finding]:
    for path in sorted([*run.iterdir(), *(run / "snapshots").iterdir()]):
        if path.name.startswith(".writing-"):
            yield Finding(NOTE, "leftovers", f"{path} is what a writer that died has left; the next writer removes it")
        elif path.name.startswith("rolled-back-"):
            yield Finding(NOTE, "leftovers", f"{path} was set aside by a rollback; delete it when nobody needs it")
        elif path.name.endswith(".damaged"):
            yield Finding(NOTE, "leftovers", f"{path} was damaged, and was set aside; delete it when nobody needs it")
    if (run / BEFORE).exists():
        yield Finding(NOTE, "migration", f"{run / BEFORE} holds the snapshot before the last migration, for `pbodl migrate --undo`")
    if (run / REQUEST).exists():
        yield Finding(PROBLEM, "migration", f"a migration waits to be done: start the learner, or delete {run / REQUEST}")

    if (run / REFUSED).exists():
        reason = (run / REFUSED).read_text(encoding="utf-8", errors="replace")
        yield Finding(PROBLEM, "migration", f"the last migration was refused: {reason} (delete {run / REFUSED} when it is settled)")


def _disk(run: Path) -> Iterator[Finding]:
    size = sum(file.stat().st_size for file in snapshots(run)[-1].rglob("*") if file.is_file())
    free = shutil.disk_usage(run).free
    if free < SPARE_SNAPSHOTS * size:
        told = f"{free / 1e6:,.0f} MB of the disk are free, and a snapshot takes {size / 1e6:,.0f} MB: free some space"
        yield Finding(PROBLEM, "disk", told)


def _model(newest: Snapshot) -> Iterator[Finding]:
    counters, spec = newest.counters, newest.model.spec
    rows, features = counters.get("rows_learned", 0), counters.get("features", 0)
    rejected = sum(counters.get(name, 0) for name in COUNTERS)
    if rejected > REJECTED_SHARE * max(rows, 1):
        told = f"the guards have rejected {rejected:,} updates in {rows:,} rows: look for numbers out of their range in the data"
        yield Finding(PROBLEM, "guards", told)
    evicted = counters.get("evicted", 0)
    if evicted > features:
        told = f"{evicted:,} features were dropped for want of room: raise model.capacity, which is {spec.capacity:,}"
        yield Finding(PROBLEM, "capacity", told)
    elif evicted:
        yield Finding(NOTE, "capacity", f"the table is full: {evicted:,} features close to their prior were dropped so far")


def _learner(run: Path, writer: str | None, newest: Snapshot) -> Iterator[Finding]:
    age = time.time() - newest.path.stat().st_mtime
    if writer is None:
        told = f"no learner runs; the newest snapshot is {_span(age)} old. Start `pbodl online` with the same --out to continue"
        yield Finding(PROBLEM, "learner", told)
        return
    if age > STALE:
        yield Finding(PROBLEM, "snapshots", f"a learner runs, and its newest snapshot is {_span(age)} old: read its log")
    point = _last_point(run)
    quiet = None if point is None else time.time() - point["time"]
    if quiet is not None and quiet > SILENT:
        yield Finding(PROBLEM, "learner", f"a learner holds the folder, but has shown no figures for {_span(quiet)}: read its log")


def _alarms(online: dict[str, Any]) -> Iterator[Finding]:
    watchdog = online["watchdog"]
    if watchdog["held"] is not None:
        told = f"publishing is held: {watchdog['held']}. Start with --release if the data are right; else roll back and repair it"
        yield Finding(PROBLEM, "alarms", told)
    elif watchdog["alarms"]:
        yield Finding(NOTE, "alarms", f"the watchdog has raised {watchdog['alarms']:,} alarms so far")
    if online.get("silent_since"):
        told = (
            f"no click has come since {moment(online['silent_since'], True)}, although some were due: nothing is judged until they "
            "come. Look at what delivers the clicks"
        )
        yield Finding(PROBLEM, "clicks", told)
    if online.get("gaps"):
        yield Finding(NOTE, "gaps", f"{online['gaps']:,} gaps in the stream were accepted")


def _events(run: Path, online: dict[str, Any]) -> Iterator[Finding]:
    events, bad, in_a_row = online["counts"][:3]
    letters = run / "dead-letters.jsonl"
    where = f"; read {letters}" if letters.exists() else ""
    if bad > BAD_SHARE * max(events + bad, 1):
        yield Finding(
            PROBLEM, "events", f"{bad:,} of {events + bad:,} events could not be read, the last {in_a_row:,} in a row{where}"
        )
    elif bad:
        yield Finding(NOTE, "events", f"{bad:,} of {events + bad:,} events could not be read{where}")


def _level(point: dict[str, Any] | None) -> Iterator[Finding]:
    for name, figures in (point or {}).get("models", {}).items():
        window = figures.get("window") or {}
        off, rows, ctr = window.get("calibration"), window.get("rows"), window.get("ctr")
        if off and rows and ctr and abs(off - 1.0) > max(LEVEL, SIGMAS / (rows * ctr) ** 0.5):
            told = (
                f"the level is off: over the last {rows:,.0f} rows {name} predicted {off:.2f} times the clicks that came. Has the "
                "traffic changed? A half_life lets the model follow"
            )
            yield Finding(PROBLEM, "level", told)


def _watched(run: Path) -> Iterator[Finding]:
    watch = read_watch(run)
    for line in (watch or {}).get("fields", []):
        name, drift, new = line["field"], line["drift"], line["new"]
        if drift is not None and drift > DRIFTED:
            told = f"the values of the field {name!r} have drifted: stability index {drift:.2f}; {line['missing']:.0%} are missing"
            yield Finding(PROBLEM, "drift", told)
        elif drift is not None and new is not None and new > OFTEN_NEW:
            yield Finding(NOTE, "drift", f"{new:.0%} of the values of the field {name!r} are new: is it an id that never recurs?")
    ratio = (watch or {}).get("martingale")
    if ratio is not None and ratio > TOO_SURE:
        told = f"predictions move {ratio:.1f} times as much as the model's variance expects: it is too sure, or the world drifts"
        yield Finding(NOTE, "uncertainty", told)


def _publications(location: str | Path, learning: bool, asked: bool) -> Iterator[Finding]:
    folder = ModelFolder(location)
    try:
        parts = newest_parts(folder)
    except InputError as error:
        yield Finding(PROBLEM, "publications", f"the newest manifest of {location} cannot be served: {error}")
        return
    if parts is None:
        yield from _published_in(folder, learning, asked)
        return
    for number in range(len(parts.lineages)):
        yield from _published_in(folder.part(number, len(parts.lineages)), learning, asked=True)


def _published_in(folder: ModelFolder, learning: bool, asked: bool) -> Iterator[Finding]:
    location, entries = folder.location, folder.entries()
    if not entries:
        if asked:
            yield Finding(PROBLEM, "publications", f"nothing is published in {location}")
        return
    fulls = [entry for entry in entries if entry.kind == FULL]
    for entry in [*fulls[-1:], *(entry for entry in entries if fulls and entry.version > fulls[-1].version)]:
        try:
            newest = folder.read(entry)
        except InputError as error:
            yield Finding(PROBLEM, "publications", f"{entry.name} of {location} cannot be served: {error}")
            return
    if not fulls:
        yield Finding(PROBLEM, "publications", f"{location} has no full snapshot: a server that starts finds nothing to serve")
        return
    age = time.time() - newest.manifest.published_at
    if learning and age > STALE:
        yield Finding(PROBLEM, "publications", f"the newest publication in {location} is {_span(age)} old, although a learner runs")


def _last_point(run: Path) -> dict[str, Any] | None:
    lines = CurveReader(run).lines()
    return json.loads(lines[-1]) if lines else None


def _span(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0.0):.0f} seconds"

"""Migrates a run folder, of `pbodl train` or `pbodl online`, to a new configuration.

The new model is written as the next snapshot, which appears whole or not at all. All that the snapshot holds beside the model is
converted with it: impressions that wait for their clicks, the watchdog's usual shares of missing values. The snapshot before
stays in RUN/before-migration, so that `undo` can return to it at any time.

A learner that runs holds the lock of its folder. It is asked by a file, RUN/migrate.toml: it saves, migrates, and goes on with the
new schema; its next publication is a full snapshot.
"""

import json
import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.migration.model_change import Migration, migrated
from pbodl.models.migration.probe import converted
from pbodl.models.migration.schema_change import KEPT, SchemaChange
from pbodl.models.snapshot import MANIFEST, SHARDS, Snapshot, load_snapshot, save, snapshots
from pbodl.streaming.cluster.stream_actor import PARTITIONS
from pbodl.streaming.join.waiting_rows import WaitingRows
from pbodl.streaming.same_run import differing_sets, saved_options
from pbodl.system.atomic_files import write_file
from pbodl.system.folder_lock import FILE as LOCK
from pbodl.system.folder_lock import writing
from pbodl.training.config import Config, check_config, read_config, to_toml
from pbodl.training.inspect.feature_names import migrate_names

logger = logging.getLogger(__name__)
REQUEST, REFUSED, BEFORE = "migrate.toml", "migrate.refused", "before-migration"
CONFIG = "config.toml"
EVERY = 0.2  # seconds between looks at what a running learner does


class MigrationDue(Exception):
    """The learner was asked to migrate, and has saved."""


def migrate(run: Path, config: Config, dry_run: bool = False, wait: float = 120.0) -> dict[str, Any]:
    """Migrate a run, or tell what would happen; if a learner runs there, it is asked to, and this waits for it."""
    if dry_run:
        return _about(_migration(load_snapshot(run), config), run, done=False)
    if (writer := writer_of(run)) == "pbodl online":
        about = _about(_migration(load_snapshot(run), config), run, done=True)
        return about | _ask(run, config, wait)
    with writing(run, "pbodl migrate"):
        return _about(apply(run, config), run, done=True) | {"writer": writer}


def apply(run: Path, config: Config) -> Migration:
    """Migrate a run whose lock this process holds."""
    snapshot = load_snapshot(run)
    result = _migration(snapshot, config)
    facts, parts = _converted(snapshot, result)
    _keep(run, snapshot.path)
    save(result.model, run, facts, parts)
    write_file(run / CONFIG, to_toml(config).encode())
    migrate_names(run, {each.before.name: each.field.name for each in result.change.fields if each.before is not None})
    return result


def undo(run: Path) -> dict[str, Any]:
    """Return to the snapshot before the last migration, and to its configuration; what was learned since is set aside."""
    kept = next((path for path in (run / BEFORE).glob("[0-9]*") if (path / MANIFEST).exists()), None)
    if kept is None:
        raise InputError(f"{run} has not been migrated; there is no {BEFORE} in it")
    with writing(run, "pbodl migrate --undo"):
        load_snapshot(kept)
        for path in snapshots(run):
            if int(path.name) > int(kept.name):
                aside = path.with_name(f"rolled-back-{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        target = run / "snapshots" / kept.name
        if not target.exists():
            _copied(kept, target)
        if (run / BEFORE / CONFIG).exists():
            write_file(run / CONFIG, (run / BEFORE / CONFIG).read_bytes())
    return {"snapshot": int(kept.name), "run": str(run)}


def migration_requested(run: Path) -> bool:
    """Whether somebody has asked the learner of this folder to migrate."""
    return (run / REQUEST).exists()


def follow_request(run: Path, config: Config) -> Config:
    """Do what was asked for; returns the configuration to go on with. What cannot be done is told in RUN/migrate.refused."""
    try:
        asked = check_config(read_config(run / REQUEST))
        for line in apply(run, asked).told:
            logger.warning("migrated: %s", line)
        config = asked
    except InputError as error:
        logger.warning("the migration was refused: %s", error)
        write_file(run / REFUSED, str(error).encode())
    (run / REQUEST).unlink(missing_ok=True)
    return config


def _migration(snapshot: Snapshot, config: Config) -> Migration:
    old, online = snapshot.model, snapshot.facts.get("online")
    if not isinstance(old, DeepProbit):
        raise InputError(f"the run has a model of kind {old.kind!r}; only the deep probit models, such as pair-fm, can be migrated")
    if config.kind != old.kind:
        raise InputError(f"model.kind is {config.kind!r}, and was {old.kind!r}: another model starts anew, in another run")
    if PARTITIONS in snapshot.facts:
        raise InputError(
            "the run learns on a cluster, where each partition keeps impressions that wait for a click; such a run cannot be "
            "migrated. Start a new run with the new configuration"
        )
    period = (online or snapshot.facts).get("period")
    if period is not None and list(config.training.period(config.schema)) != period:
        raise InputError("training.every differs from that of the run, whose figures are counted by it; leave it as it was")
    negatives = None if online is None else online.get("negatives")
    if negatives is not None and (differ := differing_sets(config, negatives)):
        raise InputError(f"{'; '.join(differ)}: impressions that are under way have their sets; leave them as they were")
    rate = config.training.negative_rate
    new = config.build(old.negative_rate if rate == "auto" else float(rate))
    assert isinstance(new, DeepProbit)
    return migrated(old, new)


def _about(result: Migration, run: Path, done: bool) -> dict[str, Any]:
    return {"run": str(run), "done": done, "changes": result.told, "largest_difference": result.difference}


def _converted(snapshot: Snapshot, result: Migration) -> tuple[dict[str, Any], dict[str, dict[str, NDArray]]]:
    """Facts and further parts of the snapshot, as the new schema has them."""
    facts, parts = dict(snapshot.facts), dict(snapshot.parts)
    facts.pop(SHARDS, None)
    if "online" in facts:
        saved_options(facts["online"]["options"])
        parts["join"] = _waiting(parts["join"], snapshot.model.schema, result)
        learned = float(facts["online"]["watchdog"]["learned"])
        parts["watchdog"] = _watched(parts["watchdog"], result.change, learned)
        if "fields" in parts:
            parts["fields"] = _field_counts(parts["fields"], result.change)
    return facts, parts


def _waiting(state: dict[str, NDArray], schema: Any, result: Migration) -> dict[str, NDArray]:
    """Impressions that wait for a click, in the new form."""
    old, new = WaitingRows(schema), WaitingRows(result.model.schema)
    old.load_state(state)
    first, last = (int(number) for number in state["rows.first"])
    new.next = first
    new.append(converted(old.take(np.arange(first, last)), result.change))
    return {name: array for name, array in state.items() if not name.startswith("rows.")} | dict(new.state())


def _watched(arrays: dict[str, NDArray], change: SchemaChange, learned: float) -> dict[str, NDArray]:
    """The watchdog's arrays; a new field may be missing in all rows, and that is no alarm."""
    usual = {"missing": learned, "usual_missing": 1.0, "last_missing": 1.0}
    result = dict(arrays)
    for name, new in usual.items():
        result[name] = np.array([arrays[name][each.was] if each.was >= 0 else new for each in change.fields])
    return result


def _field_counts(arrays: dict[str, NDArray], change: SchemaChange) -> dict[str, NDArray]:
    """What was counted of each field's values; nothing of those that are new, or mean something else."""
    places = np.array([each.was if each.fate == KEPT else -1 for each in change.fields])
    moved = {name: array[places] for name, array in arrays.items() if name != "rows"}
    for array in moved.values():
        array[places < 0] = 0.0
    return moved | {"rows": arrays["rows"]}


def _keep(run: Path, path: Path) -> None:
    """Keep a snapshot, and the configuration, for `undo`; only those of the last migration."""
    shutil.rmtree(run / BEFORE, ignore_errors=True)
    (run / BEFORE).mkdir()
    if (run / CONFIG).exists():
        shutil.copy2(run / CONFIG, run / BEFORE / CONFIG)
    _copied(path, run / BEFORE / path.name)


def _copied(source: Path, target: Path) -> None:
    """A copy of a folder that shares its files, where the disk can."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    beside = target.with_name(f".writing-{target.name}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside, copy_function=link)
    beside.rename(target)


def writer_of(run: Path) -> str | None:
    """The command that writes into the folder now, if there is one."""
    with suppress(InputError), writing(run, "pbodl migrate"):
        return None
    try:
        return str(json.loads((run / LOCK).read_text())["command"])
    except (OSError, ValueError, KeyError):
        return "another process"


def _ask(run: Path, config: Config, wait: float) -> dict[str, Any]:
    """Ask the running learner, and wait until it has followed."""
    (run / REFUSED).unlink(missing_ok=True)
    write_file(run / REQUEST, to_toml(config).encode())
    until = time.monotonic() + wait
    while (run / REQUEST).exists():
        if time.monotonic() > until:
            raise InputError(
                f"the learner of {run} has not answered within {wait:g} s; it migrates as soon as it can. To withdraw, delete "
                f"{run / REQUEST}"
            )
        time.sleep(EVERY)
    if (run / REFUSED).exists():
        raise InputError((run / REFUSED).read_text())
    return {"writer": "pbodl online"}

"""Table 1 of the paper with one command: online models on the same log, tuned alike, tested on the last day.

The result is a folder. Every model's outcome is written as soon as it exists, so a repeated command continues where it was
interrupted. An outcome is reused only if the log and the settings are the same.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pbodl.data.log.log_reader import open_log
from pbodl.experiments.outcomes import key_of, read_outcome, write_json
from pbodl.experiments.table1.entries import TABLE_1, Table1Entry
from pbodl.experiments.table1.protocol import LogRows, SplitLog, first_batches, run_model, survey
from pbodl.experiments.table1.table1_report import write_table1
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.system.tensors import read_arrays, write_arrays
from pbodl.training.config import Config, TrainingSpec, check_config, to_tables, with_changes
from pbodl.training.display import bar
from pbodl.training.paired import difference, resampled
from pbodl.training.tuning.tune import Trial, so_far, tune

__all__ = ["run_entries", "table1"]
REFERENCES = ("AdPredictor", "FTRL", "MatchBox")
OF_SAMPLING = ("negative_rate", "sets", "power")  # keys of [training] for every kind of model
OF_NOTES = ("passes", "ep", *OF_SAMPLING)  # and for those of the paper


class Table1Settings(NamedTuple):
    """The options of the experiment."""

    test_days: int = 1
    seeds: int = 3
    tune_rows: int = 200_000
    trials: int = 8


def table1(
    config: Config, paths: Sequence[str], out: Path, settings: Table1Settings, entries: Sequence[Table1Entry] = TABLE_1
) -> dict[str, Any]:
    """Run what is not done yet and write table1.md, table1.json and report.html; returns the content of table1.json."""
    table = run_entries(config, paths, out, settings, entries)
    write_json(out / "table1.json", table)
    write_table1(out, table, config)
    return table


def run_entries(
    config: Config, paths: Sequence[str], out: Path, settings: Table1Settings, entries: Sequence[Table1Entry],
    every: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tune, train and test the models, and compare their tests; `every` is the period of a line of progressive figures."""
    out.mkdir(parents=True, exist_ok=True)
    with bar() as progress:
        task = progress.add_task("reading the log", total=_rows(paths, config), text="")
        log = survey(paths, config.schema, settings.test_days, lambda rows: progress.update(task, completed=rows))
        rows, results = LogRows(log, config.schema), []
        for entry in entries:
            start = start_of(entry, config, every)
            chosen = _tuned(entry, start, log, rows, out, settings, progress)
            seeds = settings.seeds if "seed" in chosen.build().spec.__struct_fields__ else 1
            runs = [_run(entry, chosen, seed, log, rows, out, progress) for seed in range(seeds)]
            about = {"name": entry.name, "kind": entry.kind, "published": entry.published, "chosen": _chosen(chosen)}
            results.append({**about, "runs": runs})
    _compare(results, out)
    provenance = {
        "version": version("pbodl"), "data": list(paths), "checksum": log.checksum, "rows": log.rows, "train_rows": log.train_rows,
        "test_start": log.test_start, "training": _given(config, OF_NOTES), **settings._asdict(),
    }  # fmt: skip
    return {"provenance": provenance, "models": results}


def start_of(entry: Table1Entry, config: Config, every: str | None = None) -> Config:
    """The entry's configuration before tuning: it learns as [training] of `config` says, as far as its kind of model can."""
    keys = OF_NOTES if issubclass(Model.kinds[entry.kind], DeepProbit) else OF_SAMPLING
    training = _given(config, keys) | ({} if every is None else {"every": every})
    if keys is OF_SAMPLING and config.training.sets == 1:
        training.pop("power", None)  # was about visits
    return check_config({"schema": to_tables(config)["schema"], "model": {"kind": entry.kind, **entry.model}, "training": training})


def _given(config: Config, keys: Sequence[str]) -> dict[str, Any]:
    usual = TrainingSpec()
    given = {key: getattr(config.training, key) for key in keys}
    return {key: value for key, value in given.items() if value != getattr(usual, key)}


def _rows(paths: Sequence[str], config: Config) -> int | None:
    with open_log(paths, config.schema) as reader:
        return reader.rows_total


def _tuned(
    entry: Table1Entry, start: Config, log: SplitLog, rows: LogRows, out: Path, settings: Table1Settings, progress: Any
) -> Config:
    """The entry's configuration, tuned on the first part of the training days; one trial tunes nothing."""
    if settings.trials == 1:
        return start
    path = out / "tuning" / f"{entry.label}.json"
    key = key_of(log._asdict(), to_tables(start), settings.tune_rows, settings.trials)
    done = read_outcome(path, key)
    if done is None:
        batches = first_batches(rows, log, settings.tune_rows)
        total = settings.trials * sum(len(batch) for batch in batches)
        task = progress.add_task(f"tune {entry.name}", total=total, text="")
        trials = tune(start, batches, settings.trials, _watch(progress, task), entry.tuned)
        progress.remove_task(task)
        done = {"tables": to_tables(trials[0].config), "log_loss": trials[0].log_loss, "values": trials[0].values}
        write_json(path, {"key": key, **done})
    return check_config(_without_none(done["tables"]))


def _watch(progress: Any, task: Any) -> Callable[[int, Trial | None], None]:
    return lambda rows, best: progress.update(task, completed=rows, text=so_far(best))


def _run(entry: Table1Entry, config: Config, seed: int, log: SplitLog, rows: LogRows, out: Path, progress: Any) -> dict[str, Any]:
    """The outcome of one seed, from its file if it exists."""
    if "seed" in config.build().spec.__struct_fields__:
        config = check_config(_without_none(with_changes(to_tables(config), [f"model.seed={seed}"])))
    name = f"{entry.label}-{seed}"
    path = out / "models" / f"{name}.json"
    key = key_of(log._asdict(), to_tables(config))
    done = read_outcome(path, key)
    if done is not None and (out / "models" / f"{name}.safetensors").exists():
        return done
    task = progress.add_task(f"{entry.name}, seed {seed}", total=log.rows, text="")
    outcome = run_model(config, log, rows, lambda done, text: progress.update(task, completed=done, text=text))
    progress.remove_task(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(out / "models" / f"{name}.safetensors", outcome.arrays)
    result = {"seed": seed, "file": name, **outcome.facts}
    write_json(path, {"key": key, **result})
    return result


def _compare(results: list[dict[str, Any]], out: Path) -> None:
    """Add each model's means over seeds, and its paired differences to the reference models (first seeds only)."""
    first = [_predictions(out, result["runs"][0]["file"]) for result in results]
    figures = resampled([each["predicted"] for each in first], first[0]["clicks"])
    names = [result["name"] for result in results]
    for index, result in enumerate(results):
        result["auc"] = float(np.mean([run["test"]["auc"] for run in result["runs"]]))
        result["log_loss"] = float(np.mean([run["test"]["log_loss"] for run in result["runs"]]))
        result["against"] = {}
        for reference in REFERENCES:
            if reference in names and reference != result["name"]:
                found = difference(figures, index, names.index(reference))
                result["against"][reference] = {key: float(value) for key, value in found._asdict().items()}


def _predictions(out: Path, name: str) -> dict[str, np.ndarray]:
    return read_arrays(out / "models" / f"{name}.safetensors")


def _chosen(config: Config) -> dict[str, Any]:
    return {"model": config.model, "half_life": config.training.half_life}


def _without_none(value: Any) -> Any:
    """Plain data without keys whose value is None, which TOML and the configuration cannot express."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value

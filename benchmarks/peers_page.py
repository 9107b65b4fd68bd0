"""The page of the comparison with other tools, from the outcomes that `benchmarks.peers` keeps."""

import json
import os
import platform
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peer import PEERS, REFERENCE
from benchmarks.peer_logs import MAKES, PeerLog
from benchmarks.split import learned_of, log_loss
from pbodl.training.paired import Difference, difference, resampled

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "peers.md"
NOTES = Path(__file__).parent / "peers_notes.md"  # what a person concluded from the tables; part of the page
LIBRARIES = ("vowpalwabbit", "river", "torch", "lightgbm", "numpy", "numba")
LEARNING = ("tool", "progressive", "minus PairFM's (95 %)", "learning on", "minus PairFM's (95 %)")
FROZEN = ("tool", "frozen AUC", "log loss", "minus PairFM's (95 %)", "level")
COST = ("tool", "rows per CPU second", "memory, MB")
ABOUT = """
- *Progressive*: log loss of the first six sevenths of the rows, each predicted before it is learned (in PyTorch, before its batch
  is). *Learning on*: that of the last seventh, if the tool goes on learning; LightGBM cannot, so the difference in its row is its
  frozen loss minus that of `PairFM` learning on. *Frozen*: the last seventh, predicted by the model as it is then. *Level*:
  predicted clicks over clicks there.
- Differences come with a 95 % interval by a paired bootstrap over 500 blocks of rows (1000 draws); above zero, `PairFM` is better.
  They do not count the spread between seeds.
- All tools get the same features, numbers cut into buckets by the schema; LightGBM gets numbers as they are. Each tool but ours has
  its settings chosen by progressive log loss on the first rows of another log of the same make (a climb on a ladder of values, one
  setting after the other), those for a file on the first rows of the file itself. Our models have their defaults everywhere; we
  chose these on logs of the same makes, with other seeds.
- Rows per CPU second count learning, in all threads; the machine had other work. Memory is the most that learning and scoring added
  to a process that already held its libraries and the rows.
- PyTorch networks: embeddings of 16 dimensions, a linear term, hidden layers of 128 and 64 units (FM-MLP: 64 and 32), Adagrad with
  sparse gradients for the embeddings; the dense layers' rate is 0.4 of theirs.
"""


def write_page(results: Path, output: Path) -> None:
    """Write the page with a part for every log in the folder."""
    folders = sorted((path.parent for path in results.glob("*/log.json")), key=_order)
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    lines = [
        "# Side by side with today's tools",
        "",
        "One pass, as a click log is learned in production: our models with their defaults, and others tuned for each kind of log.",
        f"One tool after the other, one thread each (Vowpal Wabbit parses in a second one), on {os.cpu_count()} cores.",
        f"Versions: {libraries}, Python {platform.python_version()}.",
        "",
        "```",
        *dict.fromkeys(json.loads((folder / "log.json").read_text())["command"] for folder in folders),
        "```",
        *(NOTES.read_text().rstrip().splitlines() if NOTES.exists() else []),
    ]
    for folder in folders:
        lines += ["", *_part(folder)]
    lines += ["", "## How to read it", ABOUT.rstrip(), "", "## Settings", "", *_settings(folders)]
    output.write_text("\n".join(lines) + "\n")


def _order(folder: Path) -> tuple[bool, int, str]:
    log = _log(folder)
    return log.make == "file", log.rows, f"{[*MAKES, 'file'].index(log.make)}{log.name}"


def _log(folder: Path) -> PeerLog:
    facts = json.loads((folder / "log.json").read_text())
    return PeerLog(**{name: facts[name] for name in PeerLog._fields})


def _outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """By tool, in the order of PEERS."""
    found = {}
    for path in folder.glob("*.json"):
        if path.name != "log.json" and path.with_suffix(".npz").exists():
            facts = json.loads(path.read_text())
            found[facts["name"]] = facts | dict(np.load(path.with_suffix(".npz")))
    return {peer.name: found[peer.name] for peer in PEERS if peer.name in found}


def _part(folder: Path) -> list[str]:
    outcomes, clicks = _outcomes(folder), np.load(folder / "clicks.npy")
    learned = learned_of(len(clicks))
    base = outcomes[REFERENCE]
    rows = [_accuracy(name, facts, base, clicks[:learned], clicks[learned:]) for name, facts in outcomes.items()]
    costs = [[name, f"{f['rows'] / f['cpu_seconds']:,.0f}", f"{f['memory'] / 1e6:,.0f}"] for name, f in outcomes.items()]
    log = json.loads((folder / "log.json").read_text())
    title = f"## {log['title']}" + (f", {len(clicks):,} rows" if log["make"] == "file" else "")
    learning, frozen = [row[: len(LEARNING)] for row in rows], [[row[0], *row[len(LEARNING) :]] for row in rows]
    tables = [*_table(LEARNING, learning), "", *_table(FROZEN, frozen), "", *_table(COST, costs)]
    return [title, "", f"CTR {clicks.mean():.4f}.", "", *tables]


def _table(columns: Sequence[str], rows: list[list[str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def _accuracy(name: str, facts: dict[str, Any], base: dict[str, Any], learned: NDArray, tested: NDArray) -> list[str]:
    scored = facts["predicted"]
    auc, loss = resampled([scored], tested[: len(scored)], replicates=0)[0, 0]
    progressive = against = frozen = further = ""
    if "before" in facts:
        progressive = f"{facts['progressive']:.4f}"
    if name != REFERENCE:
        frozen = _told(_difference(scored, base["predicted"][: len(scored)], tested[: len(scored)]))
        if "before" in facts:
            n = len(facts["before"])
            against = _told(_difference(facts["before"], base["before"][-n:], learned[-n:]))
        onward = facts.get("learning_on", scored)
        further = _told(_difference(onward, base["learning_on"][: len(onward)], tested[: len(onward)]))
    learning_on = f"{log_loss(facts['learning_on'], tested[: len(scored)]):.4f}" if "learning_on" in facts else ""
    level = f"{scored.mean() / tested[: len(scored)].mean():.3f}"
    shown = f"**{name}**" if name == REFERENCE else name
    return [shown, progressive, against, learning_on, further, f"{auc:.4f}", f"{loss:.4f}", frozen, level]


def _difference(model: NDArray, base: NDArray, clicks: NDArray) -> Difference:
    return difference(resampled([model, base], clicks, replicates=1000), 0, 1)


def _told(d: Difference) -> str:
    return f"{d.log_loss:+.4f} ({d.log_loss_low:+.4f} to {d.log_loss_high:+.4f})"


def _settings(folders: list[Path]) -> list[str]:
    """The chosen settings by log that they were chosen on."""
    lines: dict[str, None] = {}
    for folder in folders:
        for name, facts in _outcomes(folder).items():
            choice = facts["choice"]
            if not choice["settings"]:
                continue
            shown = ", ".join(
                f"{key} {value:g}{' (an end)' if key in choice['ends'] else ''}" for key, value in choice["settings"].items()
            )
            note = f"; {facts['note']}" if facts["note"] else ""
            text = f"- {name}, on {choice['on']}: {shown}; {choice['tried']} settings tried on {choice['rows']:,} rows{note}"
            lines[textwrap.fill(text, 132, subsequent_indent="  ")] = None
    return ["Chosen settings; one that is an end of its ladder might do better beyond it.", "", *lines]

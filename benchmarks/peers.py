"""`python -m benchmarks.peers`: our models beside today's tools, on the same rows, in one page: docs/lab/peers.md.

One pass over six sevenths of each log, each row predicted before it is learned; then the last seventh with the model frozen, and
once more while the tool goes on learning. The tools
run one after the other in separate processes. Settings are chosen by progressive log loss on another log of the same make; for
files on the first rows of the file itself. Outcomes are kept in `benchmarks/results/peers`; a repeated command runs only what is
missing; `--again NAME` runs a tool again. The page has a part for every log whose outcomes are there.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer import PEERS, REFERENCE, Peer
from benchmarks.peer_logs import MAKES, PeerLog
from benchmarks.peers_page import PAGE, write_page
from benchmarks.split import load

RESULTS = Path(__file__).parent / "results" / "peers"
SEEDS = (523, 524)


def run_log(log: PeerLog, chosen: list[int], again: list[str], command: str) -> None:
    """Run the tools on one log; what is there already is kept."""
    folder = RESULTS / log.name
    folder.mkdir(parents=True, exist_ok=True)
    log.write(_rows(log))
    np.save(folder / "clicks.npy", load(_rows(log)).clicks)
    (folder / "log.json").write_text(json.dumps(log._asdict() | {"title": log.title, "command": command}))
    for number in chosen:
        peer = PEERS[number]
        path = folder / f"{slug(peer)}.json"
        if path.exists() and not any(part in peer.name for part in again):
            continue
        choice = tuned(number, log.to_choose_by())
        facts = _run(number, log, path.with_suffix(".part"), "--settings", json.dumps(choice["settings"]))
        path.write_text(json.dumps(facts | {"name": peer.name, "note": peer.note, "choice": choice}))
        print(f"{log.title}: {peer.name}: {choice['settings']}, progressive {facts['progressive']}", flush=True)


def tuned(number: int, log: PeerLog) -> dict[str, Any]:
    """The chosen settings of a tool for logs of a make, from the file if they were chosen before."""
    if not PEERS[number].ladders:
        return {"settings": {}}
    path = RESULTS / "chosen" / log.name / f"{slug(PEERS[number])}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_run(number, log, path.with_suffix(".part")) | {"on": log.title}))
    return json.loads(path.read_text())


def slug(peer: Peer) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in peer.name)


def _rows(log: PeerLog) -> Path:
    """The folder for the rows of a log; kept, since they take a minute to make."""
    return Path(tempfile.gettempdir()) / "pbodl-peers" / log.name


def _run(number: int, log: PeerLog, outcome: Path, *options: str) -> dict[str, Any]:
    log.write(_rows(log))
    subprocess.run([sys.executable, "-m", "benchmarks.peer", str(_rows(log)), str(number), str(outcome), *options], check=True)
    facts = json.loads(outcome.read_text())
    outcome.unlink()
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each generated log")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS), help="seeds of the generated logs")
    parser.add_argument("--makes", nargs="*", default=list(MAKES), choices=list(MAKES), help="makes of generated logs")
    parser.add_argument("--log", nargs="*", default=[], metavar="FILE", help="log files, each measured by itself")
    parser.add_argument("--config", default="", help="the configuration with their [schema], or a preset (default: guess it)")
    parser.add_argument("--only", nargs="+", metavar="PART", default=[""], help="run only tools whose name contains one of these")
    parser.add_argument(
        "--again", nargs="+", metavar="PART", default=[], help="run these tools again, even if their outcome is kept"
    )
    parser.add_argument("--output", type=Path, default=PAGE, help="file for the page")
    options = parser.parse_args()
    chosen = [
        number for number, peer in enumerate(PEERS) if peer.name == REFERENCE or any(part in peer.name for part in options.only)
    ]
    logs = [PeerLog(make, seed, options.rows) for make in options.makes for seed in options.seeds]
    logs += [PeerLog("file", path=path, config=options.config) for path in options.log]
    words = sys.argv[1:]
    if "--output" in words:  # where the page goes is no part of the measurement
        del words[words.index("--output") : words.index("--output") + 2]
    command = shlex.join(["python", "-m", "benchmarks.peers", *(Path(word).name if "/" in word else word for word in words)])
    for log in logs:
        run_log(log, chosen, options.again, command)
    write_page(RESULTS, options.output)


if __name__ == "__main__":
    main()

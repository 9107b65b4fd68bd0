"""`python -m benchmarks.guesses`: the guessed schema beside one by hand, on logs of other shapes, for docs/lab/first-hour.md.

Both schemas train the default model on the same rows, in one pass. The figure is the progressive log loss of the guess minus that
of the hand. `--half built` takes the logs that were looked at while the guess was built, `--half held-out` the others.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np

import pbodl
from benchmarks import guess_corpus, guess_held_out
from benchmarks.guess_logs import TestLog
from pbodl.data.guess.schema_guess import guess

HALVES = {"built": guess_corpus.LOGS, "held-out": guess_held_out.LOGS}
BOUND = 0.002  # log loss that a guess may lose to the hand
PAGE = Path(__file__).parent.parent / "docs" / "lab" / "first-hour.md"
BEGIN, END = "<!-- guesses -->", "<!-- end of guesses -->"


def compared(log: TestLog, folder: Path, show: bool) -> tuple[int, float, float, float]:
    """The rows of a log, its share of clicks, and the log losses by hand and by the guess."""
    data = log.write(folder)
    found = guess(data, label=log.label, **log.options)
    if show:
        print(f"\n{log.name}: {[(f.name, f.group, f.kind) for f in found.fields]}", *found.warnings, sep="\n  ")
    by_hand = pbodl.train(data, schema=log.by_hand).figures
    by_guess = pbodl.train(data, schema=found.schema()).figures
    assert by_hand is not None and by_guess is not None
    return by_hand["rows"], by_hand["ctr"], by_hand["log_loss"], by_guess["log_loss"]


def table(halves: list[str], only: str, show: bool) -> tuple[str, int]:
    """The table as Markdown, and the number of guesses that lose more than they may."""
    lines = ["| log | from | half | rows | CTR | by hand | guessed | difference |", "|---|---|---|--:|--:|--:|--:|--:|"]
    worse, differences = 0, []
    for half in halves:
        for log in HALVES[half]:
            if only not in log.name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                rows, ctr, hand, guessed = compared(log, Path(folder), show)
            difference = guessed - hand
            differences.append(difference)
            worse += difference > BOUND
            mark = "**" if difference > BOUND else ""
            figures = f"{rows:,} | {ctr:.3f} | {hand:.4f} | {guessed:.4f} | {mark}{difference:+.4f}{mark}"
            lines.append(f"| {log.name} | {log.source} | {half} | {figures} |")
            print(lines[-1], flush=True)
    print(f"{len(differences)} logs, {worse} lose more than {BOUND}; median {np.median(differences):+.4f}")
    return "\n".join(lines), worse


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guesses", description=__doc__)
    parser.add_argument("--half", choices=[*HALVES, "all"], default="all")
    parser.add_argument("--only", default="", help="part of the name of a log")
    parser.add_argument("--show", action="store_true", help="show what is guessed")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text, _ = table(list(HALVES) if options.half == "all" else [options.half], options.only, options.show)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()

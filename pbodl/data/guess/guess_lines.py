"""A guess in ten lines at most, for people who train without a configuration."""

from pbodl.data.guess.schema_guess import Guess

WIDEST = 110  # letters of a line
LINES = 10


def guess_lines(guess: Guess) -> list[str]:
    """What the label, the time and the fields are, and what is left out and why."""
    clicks = "" if guess.figures.clicks is None else f", {guess.figures.clicks:.3g} of the rows"
    lines = [f"label: {guess.label}{clicks}"]
    lines.append(f"time: {guess.time or 'none'}" + (f" (in {guess.time_unit})" if guess.time_unit else ""))
    for group in dict.fromkeys(["user", "ad", "context", *(field.group for field in guess.fields)]):
        names = [
            field.name if field.kind == "category" else f"{field.name} ({field.kind})"
            for field in guess.fields
            if field.group == group
        ]
        lines.append(f"{group}: {', '.join(names) or 'no field'}")
    left_out = [f"{column.name!r} is left out: {column.note}" for column in guess.columns if column.note]
    room = LINES - len(lines)
    shown = left_out if len(left_out) <= room else left_out[: room - 1]
    lines += shown
    if len(shown) < len(left_out):
        lines.append(f"and {len(left_out) - len(shown)} more columns are left out")
    return [line if len(line) <= WIDEST else line[: WIDEST - 4] + " ..." for line in lines]

"""A guessed schema as the `[schema]` part of a configuration file, ready to edit."""

import datetime
import re
from typing import Any

import msgspec
import tomli_w

from pbodl.data.guess.schema_guess import ColumnGuess, Guess


def guess_toml(guess: Guess) -> str:
    """TOML text, with what was seen of the log in comments."""
    roles: dict[str, Any] = {
        "label": guess.label,
        "time": guess.time,
        "time_format": guess.time_format,
        "time_unit": guess.time_unit,
    }
    roles |= {"delimiter": guess.layout.delimiter, "columns": list(guess.layout.columns) or None}
    lines = [f"# Guessed from {_seen(guess)}.", *(f"# Mind: {warning}." for warning in guess.warnings), "", "[schema]"]
    if guess.label is None:
        lines.append("# " + tomli_w.dumps({"label": guess.proposal or "..."}).strip())
    lines.append(tomli_w.dumps({role: name for role, name in roles.items() if name is not None}))
    comments = {column.name: f"  # {column.distinct:,} values{_missing(column)}" for column in guess.columns}
    for field in guess.fields:
        text = tomli_w.dumps({"name": field.name, "group": field.group, **msgspec.to_builtins(field)})
        text = re.sub(r"\n +|,\n(?=\])", " ", text).replace("[ ", "[").replace(" ]", "]")  # lists of numbers on one line
        lines += ["[[schema.fields]]", text.replace("\n", comments.get(field.name, "") + "\n", 1)]
    return "\n".join(lines)


def _missing(column: ColumnGuess) -> str:
    return f", {column.missing:.1%} missing" if column.missing else ""


def _seen(guess: Guess) -> str:
    files = guess.files[0] + (f" and {len(guess.files) - 1} more files" if len(guess.files) > 1 else "")
    seen = f"{files}: {'all' if guess.whole else 'the first'} {guess.rows:,} rows"
    if guess.figures.clicks is not None:
        seen += f", {_percent(guess.figures.clicks)} of them clicked"
    if guess.figures.first is not None and guess.figures.last is not None:
        seen += f", {_moment(guess.figures.first)} to {_moment(guess.figures.last)} (UTC)"
    return seen


def _percent(share: float) -> str:
    """A share, with digits enough that a rare click does not look like none.

    >>> _percent(0.176), _percent(0.00033)
    ('17.6%', '0.033%')
    """
    return f"{share:.1%}" if share == 0.0 or share >= 0.01 else f"{100 * share:.2g}%"


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")

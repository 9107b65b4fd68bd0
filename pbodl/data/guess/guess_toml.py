"""A guessed schema as the `[schema]` part of a configuration file, ready to edit."""

import datetime
import json

from pbodl.data.guess.schema_guess import Guess


def guess_toml(guess: Guess) -> str:
    """TOML text; what was seen stands in comments."""
    lines = [f"# Guessed from {_seen(guess)}.", *(f"# Mind: {warning}." for warning in guess.warnings), "", "[schema]"]
    lines.append(f"label = {_quoted(guess.label)}" if guess.label else '# label = "..."')
    if guess.time is not None:
        lines.append(f"time = {_quoted(guess.time)}")
    if guess.time_format is not None:
        lines.append(f"time_format = {_quoted(guess.time_format)}")
    seen = {column.name: column for column in guess.columns}
    for field in guess.fields:
        lines += ["", "[[schema.fields]]", f"name = {_quoted(field.name)}"]
        if field.name in seen:
            column = seen[field.name]
            missing = f", {column.missing:.1%} missing" if column.missing else ""
            lines[-1] += f"  # {column.distinct:,} values{missing}"
        lines.append(f"group = {_quoted(field.group)}")
        if field.kind != "category":
            lines.append(f"kind = {_quoted(field.kind)}")
        if field.derive is not None:
            lines.append(f"derive = {_quoted(field.derive)}")
    return "\n".join(lines) + "\n"


def _seen(guess: Guess) -> str:
    files = guess.files[0] + (f" and {len(guess.files) - 1} more files" if len(guess.files) > 1 else "")
    seen = f"{files}: {'all' if guess.whole else 'the first'} {guess.rows:,} rows"
    if guess.figures.clicks is not None:
        seen += f", {guess.figures.clicks:.1%} of them clicked"
    if guess.figures.first is not None and guess.figures.last is not None:
        seen += f", {_moment(guess.figures.first)} to {_moment(guess.figures.last)} (UTC)"
    return seen


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def _quoted(text: str) -> str:
    # A basic string of TOML is written as a string of JSON.
    return json.dumps(text, ensure_ascii=False)

"""The frame of a report: one HTML page with everything in it, readable offline, in light and in dark."""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from pbodl.system.atomic_files import write_file

STYLES = ("charts.css", "report.css")
SCRIPTS = ("axes.js", "charts.js", "report.js")  # each imports from those before it
NO_SCRIPT = "The charts need JavaScript. The tables hold the same figures."


@functools.cache
def asset(name: str) -> str:
    """The text of a style or script of this folder; the dashboard uses some of them as well."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _head() -> str:
    """Styles and script, and a policy that lets this script alone run and nothing be loaded."""
    style = "".join(map(asset, STYLES))
    script = "\n".join(re.sub(r"^(import .*|export )", "", asset(name), flags=re.MULTILINE) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style}</style>'
        f'<script type="module">{script}</script>'
    )


def page(title: str, lead: str, body: str) -> str:
    """A whole page; `body` is HTML, the rest is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{_head()}</head>\n"
        f'<body><main><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
        f'<noscript><p class="empty">{NO_SCRIPT}</p></noscript>{body}</main></body></html>\n'
    )


def tiles(figures: Mapping[str, str]) -> str:
    """The few figures that matter most, large."""
    inner = "".join(f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>' for name, value in figures.items())
    return f'<div class="tiles">{inner}</div>'


def section(title: str, body: str) -> str:
    """A heading and the HTML below it."""
    return f"<h2>{escape(title)}</h2>{body}\n"


def charts(*figures: str) -> str:
    """Charts side by side where there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text; the first column is aligned left, the others right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def write_page(path: Path, text: str) -> Path:
    """Write a page; a reader never gets half of it."""
    write_file(path, text.encode())
    return path

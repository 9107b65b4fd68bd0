"""The frame of a report: one HTML page with everything in it, readable in light and in dark, without a script."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from pbodl.system.atomic_files import write_file

STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --muted: #5f6b7a; --rule: #e3e7ec; --ground: #f6f7f9; --card: #ffffff;
  --c0: #2563eb; --c1: #e0701a; --c2: #0d9373; --c3: #b83280; --c4: #7552d1; --c5: #9a7400; --c6: #0b85a8; --c7: #d0342c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --muted: #9aa6b5; --rule: #2d3642; --ground: #12161c; --card: #1a2029;
  --c0: #6c9dff; --c1: #ffa35c; --c2: #45cfa4; --c3: #f08ac5; --c4: #b09aff; --c5: #dcb84e; --c6: #55c8e6; --c7: #ff8078; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0; line-height: 1.25; }
h2 { font-size: 18px; margin: 36px 0 12px; }
.lead { color: var(--muted); margin: 4px 0 24px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 12px; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; font-weight: 650; }
.tile span { color: var(--muted); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 16px; align-items: start; }
figure { margin: 0; padding: 14px 16px; }
figcaption { font-weight: 600; margin-bottom: 6px; }
.note { color: var(--muted); font-size: 13px; margin: 6px 0 0; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.value { fill: var(--ink); }
.grid { stroke: var(--rule); } .axis { stroke: var(--muted); stroke-opacity: .6; }
.ideal { stroke: var(--muted); stroke-dasharray: 4 4; }
.line { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.faint .line { stroke-width: 1; stroke-opacity: .35; }
.dashed .line { stroke-dasharray: 6 4; }
circle { fill: var(--c); } .group { fill-opacity: .75; } .reach { stroke: var(--c); stroke-opacity: .5; } .bar { fill: var(--c); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--muted); }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.legend i { width: 16px; height: 3px; border-radius: 2px; background: var(--c); }
.legend .dashed i { background: repeating-linear-gradient(90deg, var(--c) 0 5px, transparent 5px 8px); }
.legend .faint i { height: 1px; opacity: .6; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.card { overflow-x: auto; padding: 6px 14px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 8px; text-align: right; white-space: nowrap; }
th { color: var(--muted); font-weight: 500; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } tbody tr { border-top: 1px solid var(--rule); }
pre { margin: 8px 0; font: 13px/1.45 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
details summary { cursor: pointer; color: var(--muted); padding: 4px 0; }
"""


def page(title: str, lead: str, body: str) -> str:
    """A whole page; `body` is HTML, the rest is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f'<body><main><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{body}</main></body></html>\n'
    )


def tiles(figures: Mapping[str, str]) -> str:
    """The few figures that matter most, large."""
    inner = "".join(f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>' for name, value in figures.items())
    return f'<div class="tiles">{inner}</div>'


def section(title: str, body: str) -> str:
    """A heading and what stands below it, HTML."""
    return f"<h2>{escape(title)}</h2>{body}\n"


def charts(*figures: str) -> str:
    """Charts beside each other where there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text; the first column is on the left, the others on the right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def write_page(path: Path, text: str) -> Path:
    """Write a page; a reader never gets half of it."""
    write_file(path, text.encode())
    return path

"""Runs the campaign, and writes docs/lab/robustness.md."""

import platform
import tempfile
import time
from pathlib import Path

from tests.campaign.parts import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "lab" / "robustness.md"
HEAD = """# Robustness

What was done to PBODL, and what became of it. The seeds are fixed. `make test-slow` runs the same attacks, and asserts what every
line says: a line that is here has held.

```bash
python -m tests.campaign
```
"""


def main() -> None:
    lines = [HEAD]
    began = time.monotonic()
    for title, parts in SECTIONS.items():
        lines += [f"## {title}", "", "| attacked | attempts | outcome |", "|---|---:|---|"]
        for part in parts:
            with tempfile.TemporaryDirectory() as folder:
                finding = part(Path(folder))
            print(f"{time.monotonic() - began:6.0f} s  {finding}", flush=True)
            lines.append(f"| {finding.what} | {finding.attempts} | {finding.outcome} |")
        lines.append("")
    minutes = (time.monotonic() - began) / 60
    lines.append(f"Python {platform.python_version()}, Linux, 2 cores; {minutes:.0f} minutes.")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


main()

"""What the functions return: plain dicts, that print as the tables of the commands."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 120


class Result(dict[str, Any]):
    """The figures of a function, as a dict; its text is that of the command's tables."""

    def __init__(self, figures: Mapping[str, Any], tables: Callable[[Mapping[str, Any]], Sequence[Table]]) -> None:
        super().__init__(figures)
        self._tables = tables

    def __repr__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=WIDTH, highlight=False, emoji=False)
        for table in self._tables(self):
            console.print(table)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

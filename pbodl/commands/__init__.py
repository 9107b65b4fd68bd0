"""The commands of `pbodl`. Each reads its options, calls one function and prints; `pbodl.cli` imports those that are asked for."""

from typing import Any

# How help is shown. Without markup: Rich would read the [schema] of a help text as a style and drop it.
PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}

"""Outcomes of an experiment on disk: written as soon as they exist, and reused if the settings are the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pbodl.system.atomic_files import write_file


def key_of(*parts: Any) -> str:
    """A short key of everything that an outcome depends on."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def read_outcome(path: Path, key: str) -> dict[str, Any] | None:
    """The outcome written with this key; None if there is none, or if its file is damaged."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.pop("key", None) == key else None


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file; a file that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(content, indent=1).encode())

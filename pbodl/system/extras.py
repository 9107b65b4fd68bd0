"""The line that installs what an optional part of PBODL needs.

It names the libraries themselves, as the package's metadata lists them. That works however PBODL was installed: from a clone or
from a wheel, with a registry that knows PBODL or without.
"""

import importlib.metadata
import re
import shlex


def install_line(extra: str) -> str:
    """What to type to install the libraries of an extra, such as "serve"."""
    try:
        required = importlib.metadata.requires("pbodl") or []
    except importlib.metadata.PackageNotFoundError:
        required = []
    found = [requirement.partition(";")[0].strip() for requirement in required if _is_of(requirement, extra)]
    return f"pip install {' '.join(map(shlex.quote, found or [f'pbodl[{extra}]']))}"


def _is_of(requirement: str, extra: str) -> bool:
    return re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", requirement) is not None

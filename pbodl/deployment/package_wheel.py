"""The installed package as a wheel, so that an image runs the very code that trained the model, from no registry."""

import base64
import hashlib
import importlib.metadata
import io
import zipfile
from pathlib import Path

from pbodl.errors import InputError

TAG = "py3-none-any"
ABOUT = ("METADATA", "entry_points.txt")  # what an installed package keeps of its wheel's own files
MOMENT = (1980, 1, 1, 0, 0, 0)  # the same files give the same bytes


def wheel_name(version: str) -> str:
    return f"pbodl-{version}-{TAG}.whl"


def package_wheel() -> tuple[str, bytes]:
    """The name and the bytes of a wheel of this package."""
    try:
        installed = importlib.metadata.distribution("pbodl")
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("PBODL is not installed, only imported; install it first: pip install .") from error
    root, version = Path(__file__).parents[1], installed.version
    about = f"pbodl-{version}.dist-info"
    files = {
        f"pbodl/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    files |= {f"{about}/{name}": (installed.read_text(name) or "").encode() for name in ABOUT}
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: pbodl\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    lines = [f"{name},{_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, MOMENT), content, zipfile.ZIP_DEFLATED)
    return wheel_name(version), packed.getvalue()


def requirements(extras: set[str]) -> str:
    """The libraries of the package and of some extras, in the versions installed here; as the package asks for what is not."""
    lines = []
    for requirement in importlib.metadata.requires("pbodl") or []:
        name, _, marker = requirement.partition(";")
        if not marker or any(f"extra == '{extra}'" in marker.replace('"', "'") for extra in extras):
            lines.append(_pinned(name.strip()))
    return "\n".join(sorted(set(lines))) + "\n"


def _pinned(requirement: str) -> str:
    name = requirement
    for sign in "<>=!~ ":
        name = name.partition(sign)[0]
    try:
        return f"{name}=={importlib.metadata.version(name.partition('[')[0])}"
    except importlib.metadata.PackageNotFoundError:
        return requirement


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

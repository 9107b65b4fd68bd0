"""Addresses such as redis://host/stream and s3://bucket/models: they never carry a secret, because `ps` and logs show them."""

import os
import re
from pathlib import Path

from pbodl.errors import InputError

# What stands before the last @ of an address, and the options behind its ? whose names say that they are secret.
LOGIN = re.compile(r"(?<=://)[^\s'\"]*@")
SECRET_NAME = re.compile(r"pass(word|wd|phrase)|secret|token|\.pem$|jaas|credential", re.IGNORECASE)
FILE_NAME = re.compile(r"(file|location)$", re.IGNORECASE)
OPTION = re.compile(r"([\w.-]+)=([^\s&'\"]*)")


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret, and not the path of a file that does.

    >>> is_secret("sasl.password"), is_secret("password_file"), is_secret("group")
    (True, False, False)
    """
    return SECRET_NAME.search(name) is not None and FILE_NAME.search(name) is None


def without_secrets(text: str) -> str:
    """A text in which no address shows a login or a secret option.

    >>> without_secrets("redis://me:x@host/s is away; kafka://host/t?group=g&sasl.password=x too")
    'redis://***@host/s is away; kafka://host/t?group=g&sasl.password=*** too'
    """
    text = LOGIN.sub("***@", text)
    return OPTION.sub(lambda option: f"{option[1]}=***" if is_secret(option[1]) else option[0], text)


def refuse_secrets(address: str, instead: str) -> None:
    """InputError for an address with a password or another secret; `instead` says where it belongs."""
    login = LOGIN.search(address)
    if (login is not None and ":" in login[0]) or any(is_secret(option[1]) for option in OPTION.finditer(address)):
        raise InputError(
            f"the address {without_secrets(address)!r} holds a secret, which `ps` and the shell's history show to others; {instead}"
        )


def secret_from(file: str | None, variable: str) -> str | None:
    """A secret from a file, or from an environment variable if no file is given; None if neither holds one."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the password file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error

"""The exceptions whose message is prose for a person; the command line prints it, and exits with 2 or 1."""


class InputError(ValueError):
    """Input that a person can correct. The message says what was given, what is allowed and what to do. The exit code is 2."""


class WorkError(Exception):
    """The input may be right, but the work cannot be done now: a broker is away, for example. The exit code is 1."""

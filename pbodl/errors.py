"""The one exception for input that a person can put right: its message is prose, and the command line exits with 2."""


class InputError(ValueError):
    """Input that a person can correct. The message says what was given, what is allowed and what to do."""

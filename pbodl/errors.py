"""The one exception for input that a person can put right: its message is prose, and the command line exits with 2."""


class InputError(ValueError):
    """What was given, what is allowed, what to do."""

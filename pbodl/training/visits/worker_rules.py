"""The keys of [training] that say how several workers learn together: `merge` and `burn_in`."""

from pbodl.errors import InputError
from pbodl.models.clock import Duration, parse_duration

DEFAULT = "shared"
MERGES = (DEFAULT, "add")  # `parallel.merge` says what they do


def check_merge(merge: str) -> str:
    """`merge` itself, if it is the name of a rule."""
    if merge not in MERGES:
        raise InputError(f"merge is {merge!r}; it must be one of: {', '.join(MERGES)}")
    return merge


def stream_burn_in(given: str | int | None) -> str | int | None:
    """The burn-in of a stream itself: a run that continues knows how many rows it has learned, and not since when."""
    span = burn_in_of(given)
    if span is not None and not span.in_rows:
        raise InputError(
            f"[training] burn_in is {given!r}; for a stream, give it in rows, such as '100k', or learn a log first with --burn-in"
        )
    return given


def burn_in_of(given: str | int | None) -> Duration | None:
    """The amount that one worker learns first: 100k (rows), or 2d.

    >>> burn_in_of("100k"), burn_in_of("2d"), burn_in_of(None)
    (Duration(amount=100000.0, in_rows=True), Duration(amount=172800.0, in_rows=False), None)
    """
    if given is None:
        return None
    text = str(given)
    return parse_duration(f"{text} rows" if text.strip()[-1:] in tuple("0123456789kM") else text, "burn_in")

"""Whether entries of a Redis stream were lost between a position and what follows it.

Redis counts the entries that were ever added to a stream. A reader that counts what it has read, and how many were removed before
it began, can tell at every read whether any are missing: trimmed, deleted, or lost with the server's memory.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

EntryId = tuple[int, int]  # milliseconds and number


class About(NamedTuple):
    """What Redis says about a stream."""

    added: int  # entries, ever
    length: int  # entries that are left
    first: EntryId  # of these
    last: EntryId  # ever
    deleted: EntryId  # the last that was deleted by its id; trimming does not count


class Continuation(NamedTuple):
    """Where a reader is before it takes further entries, and what it has lost up to there."""

    mark: EntryId
    up_to: int  # entries up to there, ever
    gap: str | None = None


NO_STREAM = About(0, 0, (0, 0), (0, 0), (0, 0))


def about(told: dict[str, Any]) -> About:
    """The reply to XINFO STREAM."""
    last = entry_id(told["last-generated-id"])
    first = entry_id(told["first-entry"][0]) if told["first-entry"] else last
    return About(told["entries-added"], told["length"], first, last, entry_id(told["max-deleted-entry-id"]))


def continued(mark: EntryId, count: int, stream: About, is_here: bool, found: int, asked: int) -> Continuation:
    """How a reader goes on at a mark, up to which `count` entries were ever added, in a stream as it is now.

    is_here       whether the entry of the mark is still in the stream
    found, asked  how many entries behind the mark there are, of those that were asked for
    """
    if stream.last < mark:
        return Continuation(
            stream.last, stream.added,
            f"it ends at {written(stream.last)}, before the position {written(mark)}: the server has lost entries that were "
            "learned; restore it from its append-only file if you can",
        )  # fmt: skip
    removed = stream.added - stream.length
    # If all that is left is behind the mark, all up to the mark was removed; and behind it there is not more than was added.
    anew = stream.added < count + found or (stream.first > mark and removed < count)
    if anew or (found and mark > (0, 0) and not is_here and stream.first <= mark and stream.deleted < mark):
        reason = f"the entry {written(mark)}, which was learned, is not in it: it was made anew or restored"
        return Continuation(mark, stream.added - found if found < asked else removed, reason)
    if stream.first > mark and removed > count:
        trimmed = f"{removed - count} entries behind {written(mark)} were trimmed or deleted before they were read"
        return Continuation(mark, removed, f"{trimmed}; let the stream hold more (MAXLEN)")
    if found < asked and stream.added > count + found:
        lost = stream.added - count - found
        return Continuation(
            mark if found else stream.last, stream.added - found, f"{lost} entries were deleted before they were read"
        )
    return Continuation(mark, count)


def lost_to_group(group: dict[str, Any], stream: About, known: int) -> int:
    """How many entries a group has lost, beside the `known` ones; 0 where Redis does not know how many it was given."""
    given, delivered = group["entries-read"], entry_id(group["last-delivered-id"])
    if given is None:
        return 0
    trimmed = stream.added - stream.length - given - known if stream.first > delivered else 0
    missing = stream.added - given - known if delivered == stream.last else 0
    return max(trimmed, missing, 0)


def entry_id(number: bytes) -> EntryId:
    """The id of an entry as numbers."""
    milliseconds, _, sequence = bytes(number).decode().partition("-")
    return int(milliseconds), int(sequence or 0)


def written(mark: Sequence[int | str]) -> str:
    """The id of an entry as Redis writes it."""
    return f"{mark[0]}-{mark[1]}"

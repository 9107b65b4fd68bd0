"""Messages and lines as decoded objects, one for each event; what is not an event is set aside alone.

A message of a broker is msgpack if its first byte opens a map or an array of msgpack, and JSON otherwise. JSON in a message is one
object or array, or, if its first line is complete by itself, one to a line. A line of a file is JSON.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from pbodl.data.log.lines import BOM, LineBlock

SHOWN = 2000  # characters of a bad event that are kept
BLANKS = b" \t\r\n"
UNSOUND = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Decoded(NamedTuple):
    """The objects of some messages or lines."""

    events: list[Any]
    bad: list[tuple[int, str, str]]  # what is none: how many events are before it, the reason, and how it reads
    raw: Callable[[int], str]  # an event by its number, as it came


class EventTexts:
    """Decodes messages and lines into objects of one type."""

    def __init__(self, shape: Any) -> None:
        types = {False: shape, True: list[shape]}
        self._json = {many: msgspec.json.Decoder(kind) for many, kind in types.items()}
        self._msgpack = {many: msgspec.msgpack.Decoder(kind) for many, kind in types.items()}

    def messages(self, messages: Sequence[bytes]) -> Decoded:
        """The events of a broker's messages."""
        events: list[Any] = []
        bad: list[tuple[int, str, str]] = []
        for message in messages:
            if is_msgpack(message):
                self._add(message, events, bad, False)
            else:
                for text in self._pieces(message):
                    self._add(text, events, bad, True)
        return Decoded(events, bad, lambda number: _plain(events[number]))

    def lines(self, block: LineBlock) -> Decoded:
        """The events of lines of JSON; blank lines hold none."""
        lines = [line for line in block.data.split(b"\n") if line.strip(BLANKS)]
        try:
            events = list(map(self._json[False].decode, lines))
            return Decoded(events, [], lambda number: _shown(lines[number]))
        except UNSOUND:
            events = []
        bad: list[tuple[int, str, str]] = []
        raws: list[bytes | None] = []  # of each event its line, if it has one to itself
        for line in lines:
            self._add(line, events, bad, True)
            more = len(events) - len(raws)
            raws += [line if more == 1 else None] * more
        return Decoded(events, bad, lambda number: _plain(events[number]) if (line := raws[number]) is None else _shown(line))

    def _pieces(self, message: bytes) -> list[bytes]:
        """The texts of a message, each of which should be a JSON object or array."""
        text = message.removeprefix(BOM).strip(BLANKS)
        first, _, rest = text.partition(b"\n")
        if rest and (first[:1] not in (b"{", b"[") or _is_json(first)):
            return [line for line in text.split(b"\n") if line.strip(BLANKS)]
        return [text]

    def _add(self, text: bytes, events: list[Any], bad: list[tuple[int, str, str]], is_json: bool) -> None:
        """Add the events of an object or an array; of a faulty array, the items that are sound. MODIFIES: events, bad."""
        decoders = self._json if is_json else self._msgpack
        many = text.lstrip(BLANKS)[:1] == b"[" if is_json else is_array(text)
        try:
            decoded = decoders[many].decode(text)
        except UNSOUND as error:
            items = _items(text, is_json) if many else None
            for item in items or ():
                try:
                    events.append(decoders[False].decode(item))
                except UNSOUND as fault:
                    bad.append((len(events), *_fault(fault, bytes(item))))
            if items is None:
                bad.append((len(events), *_fault(error, text)))
        else:
            if many:
                events += decoded
            else:
                events.append(decoded)


def is_array(message: bytes) -> bool:
    """Whether a message begins as an array of msgpack."""
    head = message[0]
    return 0x90 <= head <= 0x9F or head in (0xDC, 0xDD)


def is_msgpack(message: bytes) -> bool:
    """Whether a message begins as a map or an array of msgpack; no text in UTF-8 does."""
    return bool(message) and (is_array(message) or 0x80 <= message[0] <= 0x8F or message[0] in (0xDE, 0xDF))


def _items(text: bytes, is_json: bool) -> list[bytes] | None:
    """The items of an array, each by itself; None if it cannot be divided."""
    module = msgspec.json if is_json else msgspec.msgpack
    try:
        return cast(list[bytes], module.decode(text, type=list[msgspec.Raw]))
    except UNSOUND:
        return None


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except UNSOUND:
        return False
    return True


def _fault(error: Exception, text: bytes) -> tuple[str, str]:
    reason = "it is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else error
    return f"it is not a JSON or msgpack object: {reason}", _shown(text)


def _shown(text: bytes) -> str:
    return text[:SHOWN].strip(BLANKS).decode("utf-8", "backslashreplace")


def _plain(event: Any) -> str:
    try:
        return msgspec.json.encode(event).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(msgspec.structs.asdict(event))

"""Outgoing messages of the built-in brokers, and the lanes that they are sent to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from headrace.errors import UpstreamError, UsageError

MAX_MESSAGE_BYTES: Final = 1024 * 1024
Key = str | Callable[[Any], str | None] | None
LaneNames = int | Sequence[str] | None
"""The number of lanes over which keys are spread, or the lanes' names. None keeps the present lanes, and gives a new queue one."""

_encode = msgspec.json.Encoder().encode


class SentMessage(NamedTuple):
    """The lane and position of a sent message."""

    lane: str
    position: int


class OutgoingMessage(NamedTuple):
    """A message on its way in: its JSON text, its lane or key, and further metadata as `encode_metadata` returns them."""

    data: bytes
    lane: str | None
    key: str | None
    metadata: bytes | None = None


class LaneLayout(msgspec.Struct, frozen=True):
    """The lanes over which keys are spread. `named`: other lanes are refused."""

    names: tuple[str, ...]
    named: bool = False

    @classmethod
    def of(cls, lanes: int | Sequence[str]) -> LaneLayout:
        """Return the layout that a user describes. Raises `UpstreamError` if it is invalid."""
        if isinstance(lanes, int):
            names, named = tuple(str(number) for number in range(lanes)), False
        else:
            names, named = tuple(lanes), True
        if not names or isinstance(lanes, str) or not all(map(is_lane, names)) or len(set(names)) < len(names):
            raise UpstreamError(
                f"A queue cannot have the lanes {lanes!r}.", hint="Give a number from 1 on, or a list of names, all different, without '@'."
            )
        return cls(names, named)

    def choose(self, draft: OutgoingMessage, turn: count[int]) -> str:
        """Return the lane for a message: its own lane, else that of its key, else the lane with this `turn`. Raises
        `UsageError`.
        """
        if draft.lane is not None:
            if self.named and draft.lane not in self.names:
                raise UsageError(f"There is no lane {draft.lane!r} in this queue.", hint=f"It has: {', '.join(self.names)}.")
            return draft.lane
        return self.names[next(turn) % len(self.names)] if draft.key is None else self.of_key(draft.key)

    def of_key(self, key: str) -> str:
        """Return the lane of a key."""
        return self.names[crc32(key.encode()) % len(self.names)]


def is_lane(name: str) -> bool:
    """Return whether this is a valid name of a lane."""
    return bool(name) and "@" not in name


def draft(value: Any, lane: str | None, key: str | None) -> OutgoingMessage:
    """Return the message for a JSON value, or for a `msgspec.Raw` of JSON text. Raises `UsageError` if it cannot be a message."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise UsageError("Bytes are not a JSON value.", hint="Send the value itself; JSON text that is ready goes in as msgspec.Raw(text).")
    if lane is not None and not is_lane(lane):
        raise UsageError(f"{lane!r} cannot be the name of a lane.", hint="A name is some text without '@'.")
    try:
        data = _encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"This cannot be sent: it is not a JSON value: {error}.") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise UsageError(
            f"A message of {len(data)} bytes is too long: at most {MAX_MESSAGE_BYTES}.",
            hint="Keep what is large elsewhere, send where it is.",
        )
    return OutgoingMessage(data, lane, key)


def drafts(values: Iterable[Any], lane: str | None, key: Key) -> list[OutgoingMessage]:
    """Return the messages for several values; `key` may be a function of the value."""
    if callable(key):
        return [draft(value, lane, key(value)) for value in values]
    return [draft(value, lane, key) for value in values]

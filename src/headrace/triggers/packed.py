"""Raw events of users' producers, as the runner has them: bytes, so that no class of a user's runs there."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import MalformedEvent
from headrace.triggers.raw_event import Message, RawEvent


class PackedSubclass(RawEvent):
    """A raw event of a user's subclass of `RawEvent`; `packed` is its pickle."""

    __slots__ = ("packed",)

    def __init__(self, data: bytes, lane: str, position: int | None, packed: bytes) -> None:
        super().__init__(data, lane, position)
        self.packed = packed


class PackedMessage(Message):
    """A message of a user's producer, of `Message` or a subclass; `packed` is its pickle."""

    __slots__ = ("packed",)

    def __init__(self, data: bytes, lane: str, position: int | None, metadata: MessageMetadata, packed: bytes) -> None:
        super().__init__(
            data, lane, position, metadata.key, metadata.delivery, metadata.headers, metadata.timestamp_ms, metadata.id, metadata.malformed
        )
        self.packed = packed


class PackedEvent(msgspec.Struct, array_like=True, eq=False):
    """A raw event that is neither a `RawEvent` nor made of JSON values.

    `packed` is its pickle, `json` the input of a watch, `text` the stored text of a backlog. `errors` has the
    reasons for missing ones, in this order. `printed` is its printed form.
    """

    packed: bytes | None
    json: bytes | None
    text: str | None
    errors: tuple[str, str, str]
    printed: str

    @property
    def value(self) -> Any:
        """The JSON value. Raises `MalformedEvent`."""
        return self.event("", 0).value

    def event(self, lane: str, position: int | None) -> RawEvent:
        """Return the input of a watch. Raises `MalformedEvent`."""
        if self.json is None:
            raise MalformedEvent(self.errors[1])
        return RawEvent(self.json, lane, position or 0)

    def backlog_text(self) -> str:
        """Return the text that a backlog stores. Raises `MalformedEvent`."""
        if self.text is None:
            raise MalformedEvent(self.errors[2])
        return self.text

    def pickled(self) -> bytes:
        """Return its pickle. Raises `MalformedEvent`."""
        if self.packed is None:
            raise MalformedEvent(self.errors[0])
        return self.packed

    def __repr__(self) -> str:
        return self.printed

    def __sizeof__(self) -> int:
        return len(self.packed or b"") + len(self.json or b"") + len(self.text or "") + len(self.printed)

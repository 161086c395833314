"""How the raw event of a user's producer goes to the runner. Packing runs the user's classes, unpacking does not."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any, Final

import msgspec

from headrace.core.values.limits import MAX_RAW_BYTES
from headrace.core.values.text import describe_error, describe_value
from headrace.errors import MalformedEvent
from headrace.streams.subscribers.raw_text import VALUE_MARK, to_text
from headrace.streams.watches import encoded
from headrace.triggers.masking import mask
from headrace.triggers.packed import PackedEvent, PackedSubclass
from headrace.triggers.raw_event import RawEvent

_decode: Final = msgspec.json.Decoder().decode


class Text(msgspec.Struct, array_like=True, tag=True):
    """A `RawEvent`; `lane` and `position` are its own. `packed`: it is of a user's subclass, and this is its pickle."""

    data: bytes
    lane: str
    position: int
    packed: bytes | None = None


class Value(msgspec.Struct, array_like=True, tag=True):
    """A value that is equal to what its JSON makes."""

    json: bytes


class Opaque(msgspec.Struct, array_like=True, tag=True):
    """Anything else."""

    event: PackedEvent


Packed = Text | Value | Opaque


class _Pickler(pickle.Pickler):
    """Sees whether a value is made of types that JSON has no other classes for."""

    plain = True

    def reducer_override(self, value: Any) -> Any:
        """Called for whatever is of none of Python's own basic types."""
        del value
        self.plain = False
        return NotImplemented


def pack(raw: Any, lane: str, position: int | None) -> Packed:
    """Return what goes to the runner. Nothing is raised, whatever `raw` is."""
    if type(raw) is RawEvent and _is_whole(raw):
        return Text(raw.data, raw.lane, raw.position)
    try:
        packed, plain, trouble = *_pickled(raw), ""
    except BaseException as error:  # a class of the user's may raise anything, also SystemExit
        packed, plain, trouble = None, False, f"It cannot be pickled: {mask(describe_error(error))}"
    if packed is not None and isinstance(raw, RawEvent) and _is_whole(raw):
        return Text(raw.data, raw.lane, raw.position, packed)
    text, no_text = _tried(lambda: to_text(raw))
    if plain and text is not None and text.startswith(VALUE_MARK):
        return Value(text[1:].encode())
    event, no_event = _tried(lambda: raw if isinstance(raw, RawEvent) else encoded(raw, lane, position))
    json = event.data if event is not None and type(event.data) is bytes else None
    if json is None and not no_event:
        no_event = "Its data is not bytes."
    if text is not None and len(text) + len(json or b"") > MAX_RAW_BYTES:
        text = json = None
        no_text = no_event = _too_long(MAX_RAW_BYTES)
    return Opaque(PackedEvent(packed, json, text, (trouble, no_event, no_text), describe_value(raw)))


def unpack(packed: Packed) -> Any:
    """Return the raw event as the runner holds it."""
    if isinstance(packed, Value):
        return _decode(packed.json)
    if isinstance(packed, Opaque):
        return packed.event
    if packed.packed is None:
        return RawEvent(packed.data, packed.lane, packed.position)
    return PackedSubclass(packed.data, packed.lane, packed.position, packed.packed)


def size_of(packed: Packed) -> int:
    """Return about how many bytes it has."""
    if isinstance(packed, Text):
        return len(packed.data) + len(packed.packed or b"")
    return len(packed.json) if isinstance(packed, Value) else packed.event.__sizeof__()


def _is_whole(raw: RawEvent) -> bool:
    """Whether its fields are what they should be, and not too long."""
    try:
        data, lane, position = raw.data, raw.lane, raw.position
        if type(data) is not bytes or type(lane) is not str or type(position) is not int:
            return False
        return len(data) <= MAX_RAW_BYTES and position.bit_length() < 64 and (lane.isascii() or len(lane.encode()) > 0)
    except BaseException:  # one that has not all of them, or half a surrogate pair
        return False


def _pickled(raw: Any) -> tuple[bytes, bool]:
    buffer = BytesIO()
    pickler = _Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dump(raw)
    packed = buffer.getvalue()
    if len(packed) > MAX_RAW_BYTES:
        raise MalformedEvent(_too_long(len(packed)))
    return packed, pickler.plain


def _tried(make: Any) -> tuple[Any, str]:
    try:
        return make(), ""
    except MalformedEvent as error:
        return None, mask(str(error))
    except BaseException as error:  # as above
        return None, f"It cannot be read: {mask(describe_error(error))}"


def _too_long(count: int) -> str:
    return f"It has {count} bytes or more; at most {MAX_RAW_BYTES} go from one process to another."

"""Encode the raw events of a user's producer for the runner. Packing runs the user's classes, unpacking does not."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any, Final

import msgspec
import structlog

from headrace.core.values.limits import MAX_RAW_BYTES
from headrace.core.values.message_text import VALUE_MARK, MessageMetadata
from headrace.core.values.text import describe_error, describe_value
from headrace.errors import MalformedEvent
from headrace.streams.subscribers.raw_text import to_text
from headrace.streams.watches import encoded
from headrace.triggers.masking import mask
from headrace.triggers.packed import PackedEvent, PackedMessage, PackedSubclass
from headrace.triggers.raw_event import Message, RawEvent, message_with

_decode: Final = msgspec.json.Decoder().decode
log = structlog.get_logger(__name__)


class Text(msgspec.Struct, array_like=True, tag=True):
    """A `RawEvent` with its own `lane` and `position`. `packed` is the pickle of a message, or of an instance of a user's subclass.

    `metadata` are those of a message, if they are valid.
    """

    data: bytes
    lane: str
    position: int | None
    packed: bytes | None = None
    metadata: MessageMetadata | None = None


class Value(msgspec.Struct, array_like=True, tag=True):
    """A value that equals the result of decoding its JSON."""

    json: bytes


class Opaque(msgspec.Struct, array_like=True, tag=True):
    """Any other value."""

    event: PackedEvent


Packed = Text | Value | Opaque


class _Pickler(pickle.Pickler):
    """Detects whether a value consists only of types that JSON can restore."""

    plain = True

    def reducer_override(self, value: Any) -> Any:
        """Mark the value as not plain. The pickler calls this for each object that is not of a basic Python type."""
        del value
        self.plain = False
        return NotImplemented


def pack(raw: Any, lane: str, position: int | None) -> Packed:
    """Return the form to send to the runner. Never raises, whatever `raw` is."""
    if type(raw) is RawEvent and _is_whole(raw):
        return Text(raw.data, raw.lane, raw.position)
    try:
        packed, plain, no_pickle = *_pickled(raw), ""
    except BaseException as error:  # a user's class may raise anything, including SystemExit
        packed, plain, no_pickle = None, False, f"It cannot be pickled: {mask(describe_error(error))}"
    if packed is not None and isinstance(raw, RawEvent) and _is_whole(raw):
        return Text(raw.data, raw.lane, raw.position, packed, _metadata(raw))
    text, no_text = _attempt(lambda: to_text(raw))
    if plain and text is not None and text.startswith(VALUE_MARK):
        return Value(text[1:].encode())
    event, no_event = _attempt(lambda: raw if isinstance(raw, RawEvent) else encoded(raw, lane, position))
    json = event.data if event is not None and type(event.data) is bytes else None
    if json is None and not no_event:
        no_event = "Its data is not bytes."
    if text is not None and len(text) + len(json or b"") > MAX_RAW_BYTES:
        text = json = None
        no_text = no_event = _too_long(MAX_RAW_BYTES)
    return Opaque(PackedEvent(packed, json, text, (no_pickle, no_event, no_text), describe_value(raw)))


def unpack(packed: Packed) -> Any:
    """Return the raw event in the form that the runner uses."""
    if isinstance(packed, Value):
        return _decode(packed.json)
    if isinstance(packed, Opaque):
        return packed.event
    if packed.packed is None:
        return RawEvent(packed.data, packed.lane, packed.position)
    if packed.metadata is not None:
        return PackedMessage(packed.data, packed.lane, packed.position, packed.metadata, packed.packed)
    return PackedSubclass(packed.data, packed.lane, packed.position, packed.packed)


def pack_stored(message: object) -> Text:
    """Return the form to send of a message of a backlog, without a pickle. Raises `MalformedEvent` for any other value."""
    metadata = _metadata(message) if isinstance(message, Message) and _is_whole(message) else None
    if metadata is None or not isinstance(message, Message):
        raise MalformedEvent("What it was decoded to is not a message with valid metadata.")
    return Text(message.data, message.lane, message.position, None, metadata)


def unpack_stored(text: Text) -> Message:
    """Return the message of a backlog."""
    return message_with(text.metadata or MessageMetadata(), text.data, text.lane, text.position)


def size_of(packed: Packed) -> int:
    """Return the approximate size in bytes."""
    if isinstance(packed, Text):
        return len(packed.data) + len(packed.packed or b"")
    return len(packed.json) if isinstance(packed, Value) else packed.event.__sizeof__()


def _is_whole(raw: RawEvent) -> bool:
    """Return whether the fields have valid types and sizes."""
    try:
        data, lane, position = raw.data, raw.lane, raw.position
        if type(data) is not bytes or type(lane) is not str or not (position is None or type(position) is int):
            return False
        in_range = position is None or position.bit_length() < 64
        return len(data) <= MAX_RAW_BYTES and in_range and (lane.isascii() or len(lane.encode()) > 0)
    except BaseException:  # a field may be missing, or have half a surrogate pair
        return False


def _metadata(raw: RawEvent) -> MessageMetadata | None:
    """Return the metadata of a message, or None for another raw event and for metadata that cannot be sent."""
    if not isinstance(raw, Message):
        return None
    try:
        metadata = msgspec.convert(msgspec.to_builtins(raw.metadata, builtin_types=(bytes,)), MessageMetadata, builtin_types=(bytes,))
        text = msgspec.msgpack.encode(metadata)
    except BaseException as error:  # as above
        log.warning("metadata of a message not sent", error=mask(describe_error(error)))
        return None
    return metadata if len(text) <= MAX_RAW_BYTES else None


def _pickled(raw: Any) -> tuple[bytes, bool]:
    buffer = BytesIO()
    pickler = _Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dump(raw)
    packed = buffer.getvalue()
    if len(packed) > MAX_RAW_BYTES:
        raise MalformedEvent(_too_long(len(packed)))
    return packed, pickler.plain


def _attempt(make: Any) -> tuple[Any, str]:
    try:
        return make(), ""
    except MalformedEvent as error:
        return None, mask(str(error))
    except BaseException as error:  # as above
        return None, f"It cannot be read: {mask(describe_error(error))}"


def _too_long(count: int) -> str:
    return f"It has {count} bytes or more; at most {MAX_RAW_BYTES} go from one process to another."

"""Decoding of bodies: the envelopes of SNS, EventBridge and S3, each removed from its content, and the formats of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote_plus

import msgspec

from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.declared_decoder import Decoding, check_decoding, decoder_of, is_function
from headrace.sources.decoding import DECODERS, Decoder
from headrace.triggers.raw_event import RawHeaders

Envelope = TypeVar("Envelope")

Step: TypeAlias = Decoding | Literal["sns", "eventbridge", "s3"]
"""One step from a body to JSON: an envelope, a format or a function. Envelopes contain JSON unless a step follows."""

FINAL_STEPS: Final = (*DECODERS, "s3")
"""Steps after which no other step can follow."""
SYSTEM_HEADERS: Final = ("MessageDeduplicationId", "SequenceNumber", "AWSTraceHeader")
"""System attributes of a message that become headers."""
ENVELOPE_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "sns": ("sns_message_id", "sns_topic", "sns_subject"),
    "eventbridge": ("eventbridge_id", "source", "detail_type", "account", "region", "time"),
}
"""The headers from the fields of each envelope. The content of the envelope always has the first one."""
TEST_EVENT: Final = "s3:TestEvent"
"""The message that S3 sends when notifications are configured. It has no record."""


class Record(NamedTuple):
    """One record of a body. `id` is that of its format, or None. `malformed` says why it is not as declared; `data` is then the content."""

    data: bytes
    key: str | None = None
    headers: RawHeaders = ()
    id: str | None = None
    malformed: str | None = None


_Unpack: TypeAlias = Callable[[Record, frozenset[str]], list[Record]]
"""Return the records of one record after a step. Attributes of senders with one of these names are dropped. Raises `MalformedEvent`."""


class _Attribute(msgspec.Struct):
    Value: str


class _Notification(msgspec.Struct):
    """A notification of SNS, without raw message delivery."""

    Message: str
    MessageId: str
    TopicArn: str
    Type: Literal["Notification"]
    Subject: str | None = None
    MessageAttributes: dict[str, _Attribute] = {}


class _Event(msgspec.Struct):
    """An event of EventBridge."""

    id: str
    source: str
    detail_type: str = msgspec.field(name="detail-type")
    detail: msgspec.Raw = msgspec.field()
    account: str | None = None
    region: str | None = None
    time: str | None = None


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str


class _S3(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class _S3Record(msgspec.Struct):
    s3: _S3


class _S3Records(msgspec.Struct):
    Records: list[msgspec.Raw] | None = None
    Event: str | None = None


_notification: Final = msgspec.json.Decoder(_Notification).decode
_event: Final = msgspec.json.Decoder(_Event).decode
_s3_records: Final = msgspec.json.Decoder(_S3Records).decode
_s3_record: Final = msgspec.json.Decoder(_S3Record).decode


def check_steps(decode: object) -> tuple[str, ...]:
    """Return the steps of an argument: one, or several from the outer to the inner. Raises `UpstreamError`."""
    arguments = decode if isinstance(decode, Sequence) and not isinstance(decode, str) else (decode,)
    if not arguments:
        raise UpstreamError(f"Invalid decode {decode!r}.", hint=f"Use one or several of: {', '.join(_STEPS)}.")
    steps = tuple(check_decoding(step, tuple(_STEPS)) for step in arguments)
    for step in steps[:-1]:
        if step in FINAL_STEPS or is_function(step):
            raise UpstreamError(f"Invalid decode {decode!r}: nothing can follow {step!r}.", hint='Begin with the outer one: ("sns", "s3").')
    return steps


def has_several_records(decoding: Sequence[Step]) -> bool:
    """Return whether a body may have any number of records."""
    return "s3" in decoding


def unpack(body: str, decoding: Sequence[Step], headers: RawHeaders = ()) -> list[Record]:
    """Return the records of a body. A body that is not as declared is a single malformed record."""
    return _unpack_record(Record(body.encode(errors="surrogatepass"), headers=headers), decoding, reserved_names(decoding))


def unpack_again(content: bytes, decoding: Sequence[Step], headers: RawHeaders) -> list[Record]:
    """Return the records of the content at which the decoding failed. Envelopes whose headers it has were removed before."""
    removed = removed_envelopes(headers)
    steps = [step for step in decoding if step not in removed]
    return _unpack_record(Record(content, headers=headers), steps, reserved_names(decoding))


def removed_envelopes(headers: RawHeaders) -> frozenset[str]:
    """Return the envelopes that were removed from the content with these headers.

    It holds for declared envelopes: no attribute of a sender has a name of `reserved_names`.
    """
    names = {name for name, _ in headers}
    return frozenset(step for step, own in ENVELOPE_HEADERS.items() if own[0] in names)


def reserved_names(decoding: Sequence[Step]) -> frozenset[str]:
    """Return the headers that the queue and the declared envelopes set. An attribute of a sender with such a name is dropped."""
    return frozenset(SYSTEM_HEADERS).union(*(ENVELOPE_HEADERS.get(step, ()) for step in decoding))


def _unpack_record(record: Record, decoding: Sequence[Step], reserved: frozenset[str]) -> list[Record]:
    """Return the records of one record after these steps."""
    records = [record]
    for name in decoding:
        step = _step(name)
        records = [part for record in records for part in ([record] if record.malformed else _after(step, record, reserved))]
    return records


def _after(step: _Unpack, record: Record, reserved: frozenset[str]) -> list[Record]:
    try:
        return step(record, reserved)
    except MalformedEvent as error:
        return [record._replace(malformed=str(error))]


def _step(name: Step) -> _Unpack:
    return _format(decoder_of(name)) if is_function(name) else _STEPS[name]


def _format(decode: Decoder) -> _Unpack:
    """Return the step of a format."""

    def step(record: Record, reserved: frozenset[str]) -> list[Record]:
        del reserved
        data, id = decode(record.data, record.headers)
        return [record._replace(data=data, id=id)]

    return step


def _sns(record: Record, reserved: frozenset[str]) -> list[Record]:
    notification = _envelope("a notification of SNS", _notification, record.data)
    attributes = [(name, attribute.Value) for name, attribute in notification.MessageAttributes.items() if name not in reserved]
    own = (notification.MessageId, notification.TopicArn, notification.Subject)
    headers = [*attributes, *zip(ENVELOPE_HEADERS["sns"], own, strict=True)]
    return [_content(record, notification.Message.encode(errors="surrogatepass"), headers)]


def _eventbridge(record: Record, reserved: frozenset[str]) -> list[Record]:
    del reserved
    event = _envelope("an event of EventBridge", _event, record.data)
    own = (event.id, event.source, event.detail_type, event.account, event.region, event.time)
    return [_content(record, bytes(event.detail), [*zip(ENVELOPE_HEADERS["eventbridge"], own, strict=True)])]


def _s3(record: Record, reserved: frozenset[str]) -> list[Record]:
    del reserved
    kind = "a notification of S3"
    content = _envelope(kind, _s3_records, record.data)
    if content.Records is not None:
        return [record._replace(data=bytes(one), key=_object_key(_envelope(kind, _s3_record, one))) for one in content.Records]
    if content.Event == TEST_EVENT:
        return []
    raise MalformedEvent(f"The message is not {kind}: it has no Records.")


def _object_key(record: _S3Record) -> str:
    """Return the bucket and the key of the object, which S3 encodes as in a form."""
    return f"{record.s3.bucket.name}/{unquote_plus(record.s3.object.key)}"


def _envelope(kind: str, decode: Callable[[bytes | msgspec.Raw], Envelope], data: bytes | msgspec.Raw) -> Envelope:
    """Return the envelope in the data. Raises `MalformedEvent` if they are of another kind, or nested too deeply."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"The message is not {kind}: {error}.") from error


def _content(record: Record, data: bytes, headers: Sequence[tuple[str, str | None]]) -> Record:
    encoded = [(name, value.encode(errors="surrogatepass")) for name, value in headers if value is not None]
    return record._replace(data=data, headers=(*record.headers, *encoded))


_STEPS: Final[Mapping[str, _Unpack]] = {
    **{name: _format(decode) for name, decode in DECODERS.items()},
    "sns": _sns,
    "eventbridge": _eventbridge,
    "s3": _s3,
}

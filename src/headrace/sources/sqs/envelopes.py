"""Decoding of bodies: the envelopes of SNS, EventBridge and S3, each removed from its content, and the formats of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_plus

import msgspec

from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.declared_decoder import Decoding, check_decoding, decoder_of, is_function
from headrace.sources.decoding import DECODERS, Decoder
from headrace.triggers.raw_event import RawHeaders

Step: TypeAlias = Decoding | Literal["sns", "eventbridge", "s3"]
"""One step from a body to JSON: an envelope, a format or a function. Envelopes contain JSON unless a step follows."""

FINAL_STEPS: Final = (*DECODERS, "s3")
"""Steps after which no other step can follow."""
_MARKS: Final[Mapping[str, str]] = {"sns": "sns_message_id", "eventbridge": "eventbridge_id"}
"""The header that the content of each envelope has."""
TEST_EVENT: Final = "s3:TestEvent"
"""The message that S3 sends when notifications are configured. It has no record."""


class Record(NamedTuple):
    """One record of a body. `id` is that of its format, or None. `malformed` says why it is not as declared; `data` is then the content."""

    data: bytes
    key: str | None = None
    headers: RawHeaders = ()
    id: str | None = None
    malformed: str | None = None


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
    return unpack_record(Record(body.encode(errors="surrogatepass"), headers=headers), decoding)


def unpack_again(content: bytes, decoding: Sequence[Step], headers: RawHeaders) -> list[Record]:
    """Return the records of the content at which the decoding failed. Envelopes whose headers it has were removed before."""
    removed = removed_envelopes(headers)
    steps = [step for step in decoding if step not in removed]
    return unpack_record(Record(content, headers=headers), steps)


def removed_envelopes(headers: RawHeaders) -> frozenset[str]:
    """Return the envelopes that were removed from the content with these headers."""
    names = {name for name, _ in headers}
    return frozenset(step for step, mark in _MARKS.items() if mark in names)


def unpack_record(record: Record, decoding: Sequence[Step]) -> list[Record]:
    """Return the records of one record after these steps."""
    records = [record]
    for step in decoding:
        records = [part for record in records for part in ([record] if record.malformed else _step(step)(record))]
    return records


def _step(name: Step) -> Callable[[Record], list[Record]]:
    return _format(decoder_of(name)) if is_function(name) else _STEPS[name]


def _format(decode: Decoder) -> Callable[[Record], list[Record]]:
    """Return the step of a format."""

    def step(record: Record) -> list[Record]:
        try:
            data, id = decode(record.data, record.headers)
        except MalformedEvent as error:
            return [record._replace(malformed=str(error))]
        return [record._replace(data=data, id=id)]

    return step


def _sns(record: Record) -> list[Record]:
    try:
        notification = _notification(record.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [record._replace(malformed=f"The message is not a notification of SNS: {error}.")]
    headers = [("sns_message_id", notification.MessageId), ("sns_topic", notification.TopicArn), ("sns_subject", notification.Subject)]
    headers += [(name, attribute.Value) for name, attribute in notification.MessageAttributes.items()]
    return [_content(record, notification.Message.encode(errors="surrogatepass"), headers)]


def _eventbridge(record: Record) -> list[Record]:
    try:
        event = _event(record.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [record._replace(malformed=f"The message is not an event of EventBridge: {error}.")]
    headers = [
        ("eventbridge_id", event.id),
        ("source", event.source),
        ("detail_type", event.detail_type),
        ("account", event.account),
        ("region", event.region),
        ("time", event.time),
    ]
    return [_content(record, bytes(event.detail), headers)]


def _s3(record: Record) -> list[Record]:
    try:
        content = _s3_records(record.data)
        if content.Records is None:
            if content.Event == TEST_EVENT:
                return []
            return [record._replace(malformed="The message is not a notification of S3: it has no Records.")]
        return [record._replace(data=bytes(one), key=_object_key(one)) for one in content.Records]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [record._replace(malformed=f"The message is not a notification of S3: {error}.")]


def _object_key(record: msgspec.Raw) -> str:
    """Return the bucket and the key of the object, which S3 encodes as in a form."""
    s3 = _s3_record(record).s3
    return f"{s3.bucket.name}/{unquote_plus(s3.object.key)}"


def _content(record: Record, data: bytes, headers: Sequence[tuple[str, str | None]]) -> Record:
    encoded = [(name, value.encode(errors="surrogatepass")) for name, value in headers if value is not None]
    return record._replace(data=data, headers=(*record.headers, *encoded))


_STEPS: Final[Mapping[str, Callable[[Record], list[Record]]]] = {
    **{name: _format(decode) for name, decode in DECODERS.items()},
    "sns": _sns,
    "eventbridge": _eventbridge,
    "s3": _s3,
}

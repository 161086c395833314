"""The durable consumers of one upstream: each lane has one, which keeps the acknowledged sequence, the *floor*, at the server.

A server delivers what an earlier reader held again only after `ack_wait`. So an opening takes each consumer over:

- A server from 2.14 resets the consumer to its floor.
- Otherwise, or if another reader waits for messages, the consumer is deleted and created again after its floor. The other reader gets
  notice. A second consumer, which is never read, has the floor meanwhile: it is created before the deletion, and deleted at the end.
- A work queue allows no second consumer, and needs none: it deletes acknowledged messages, so that a new consumer gets the rest.

A seek moves the floor of a lane: its consumer is always created again, and begins at the position of the seek.

A stream that ends before a floor was cut by its server. Its next messages have the sequences of lost ones, so the lane is refused. The
description of the consumer has a note of that, because the stream may have grown past the floor at the next opening. It also has the floor
of the last opening: newer servers lower the floor of a consumer to the end of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumer_note import ConsumerNote, Info, ack_floor, last_floor, note_of
from headrace.sources.nats.lanes import UNKNOWN, Lane
from headrace.sources.nats.service_errors import CONSUMER_NOT_FOUND, FILES_NOT_REMOVED
from headrace.sources.nats.start import Start, begin_after, begin_at
from headrace.sources.nats.subjects import ALL_SUBJECTS, FLOOR_SUFFIX, consumer_name, covers, lane_name
from headrace.triggers.stream_log import LaneMove, LogMark, StreamSeek

ACK_WAIT_NS: Final = 12 * 3600 * 1_000_000_000
WORK_QUEUE: Final = "workqueue"
NO_MESSAGE: Final = 10037
"""The code of JetStream for: no message lists."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class StreamSource(NamedTuple):
    """Another stream that a stream copies, as a mirror or as one of its sources: which subjects, and whether they change."""

    stream: str
    subjects: Sequence[str]
    is_transformed: bool


class StreamInfo(NamedTuple):
    """The stream as the server describes it."""

    created: str
    first: int
    last: int
    retention: str
    subjects: Sequence[str]
    sources: Sequence[StreamSource] = ()
    is_partial_mirror: bool = False
    """Whether it is a mirror of some subjects. It has the sequences of its origin, without those of other subjects."""

    @property
    def is_work_queue(self) -> bool:
        """Whether it deletes each acknowledged message."""
        return self.retention == WORK_QUEUE

    def is_covered_by(self, filter: str) -> bool:
        """Return whether a subject filter matches every message of the stream.

        A mirror has no subjects of its own, and a stream with sources has messages of other subjects too.
        """
        if filter == ALL_SUBJECTS:
            return not self.is_partial_mirror
        return bool(self.subjects) and not self.sources and covers(filter, self.subjects)


class Description(NamedTuple):
    """The arguments of a `Nats` upstream that its consumers need."""

    stream: str
    durable: str
    subjects: Sequence[str]
    start: Start
    max_ack_pending: int


async def look_at_stream(client: NatsClient, stream: str) -> StreamInfo:
    """Return what the server says of the stream. Raises `HeadraceError`."""
    answer = await client.api(f"Stream {stream!r} cannot be read", f"STREAM.INFO.{stream}") or {}
    config, state = answer["config"], answer["state"]
    return StreamInfo(
        str(answer["created"]),
        int(state["first_seq"]),
        int(state["last_seq"]),
        str(config.get("retention")),
        tuple(config.get("subjects") or ()),
        tuple(_source(one) for one in (config.get("mirror"), *(config.get("sources") or ())) if one),
        bool(config.get("mirror")) and list(_source(config["mirror"]).subjects) != [ALL_SUBJECTS],
    )


def _source(config: Info) -> StreamSource:
    transforms = config.get("subject_transforms") or ()
    subjects = [one["src"] for one in transforms] or [config.get("filter_subject") or ALL_SUBJECTS]
    return StreamSource(str(config["name"]), subjects, bool(transforms))


async def look_at_consumer(client: NatsClient, stream: str, consumer: str) -> Info | None:
    """Return what the server says of a consumer, or None if it does not exist. Raises `HeadraceError`."""
    return await client.api(f"Consumer {consumer!r} cannot be read", f"CONSUMER.INFO.{stream}.{consumer}", none_for=(CONSUMER_NOT_FOUND,))


async def first_sequence(client: NatsClient, description: Description, stream: StreamInfo, subject: str) -> int:
    """Return the sequence from which a reader would read: after the acknowledged one, or at the start of its consumer."""
    name = consumer_name(description.durable, subject)
    for consumer in (name, name + FLOOR_SUFFIX):
        info = await look_at_consumer(client, description.stream, consumer)
        if info is not None:
            return await _next_sequence(client, description.stream, stream, info)
    if isinstance(description.start, datetime):
        return await sequence_at(client, description.stream, stream, description.start)
    if description.start == "latest":
        return stream.last + 1
    return 1 if description.start == "earliest" else description.start


async def _next_sequence(client: NatsClient, name: str, stream: StreamInfo, info: Info) -> int:
    """Return the sequence from which a consumer reads if it is taken over."""
    if ack_floor(info) > 0:
        return ack_floor(info) + 1
    config = info["config"]
    if "opt_start_time" in config:
        return await sequence_at(client, name, stream, datetime.fromisoformat(config["opt_start_time"]))
    return int(config.get("opt_start_seq") or max(1, stream.first))


async def sequence_at(client: NatsClient, name: str, stream: StreamInfo, time: datetime) -> int:
    """Return the sequence of the first message at or after a time, by bisection."""
    low, high = stream.first, stream.last + 1
    while low < high:
        middle = (low + high) // 2
        message = await message_after(client, name, ALL_SUBJECTS, middle)
        if message is None:
            high = middle
        elif nanoseconds(message["time"]) < int((time - _EPOCH).total_seconds() * 1_000_000) * 1_000:
            low = int(message["seq"]) + 1
        else:
            high = middle
    return low


async def message_after(client: NatsClient, stream: str, subject: str, sequence: int) -> Mapping[str, Any] | None:
    """Return the first message of a subject filter from a sequence on, or None if there is none."""
    body = {"seq": max(1, sequence), "next_by_subj": subject}
    answer = await client.api(f"Stream {stream!r} cannot be read", f"STREAM.MSG.GET.{stream}", body, none_for=(NO_MESSAGE,))
    return None if answer is None else answer["message"]


def nanoseconds(text: str) -> int:
    """Return a time of the server, which may have nine digits of a second, in nanoseconds since 1970."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    seconds = int((datetime.fromisoformat(whole).replace(tzinfo=UTC) - _EPOCH).total_seconds())
    return seconds * 1_000_000_000 + int(rest[:9].ljust(9, "0") or 0)


class Consumers:
    """Takes over the consumers of one upstream. `notes` are those of the last opening, `missing` are the consumers that were deleted."""

    def __init__(self, client: NatsClient, description: Description, stream: StreamInfo, mark: LogMark | None) -> None:
        self._client = client
        self._description = description
        self._stream = stream
        self._mark = mark
        self.notes: list[ConsumerNote] = []
        self.missing: list[str] = []
        self._infos: dict[str, Info] = {}

    async def look(self) -> None:
        """Read the consumers, and the notes of the last opening.

        Raises:
            UpstreamError: A consumer was deleted, and the first message to read is not known without it.
        """
        names = [consumer_name(self._description.durable, subject) for subject in self._description.subjects]
        names += [name + FLOOR_SUFFIX for name in names]
        infos = await _all(look_at_consumer(self._client, self._description.stream, name) for name in names)
        self._infos = {name: info for name, info in zip(names, infos, strict=True) if info is not None}
        self.notes = [note_of(info) for info in self._infos.values()]
        was_read = self._mark is not None and self._mark.receipts > 0
        self.missing = [
            name
            for name in names
            if not name.endswith(FLOOR_SUFFIX)
            and not self._infos.keys() & {name, name + FLOOR_SUFFIX}
            and (any(note.has(name) for note in self.notes) or (not self._infos and was_read))
        ]
        if self.missing and (self._description.start == "latest" or isinstance(self._description.start, int)):
            raise UpstreamError(
                f"Messages may be lost: consumer {self.missing[0]} was deleted, or its stream was, and it was read before.",
                hint='Set start="earliest" or a time. Events that are stored are recognised, unless the stream was created again.',
            )

    async def begin_seek(self, seek: StreamSeek) -> Mapping[str, int]:
        """Record the lanes of a seek that this upstream has. Return the first sequence to read of each lane that moves.

        A work queue has no position to move: it has only the messages that are not acknowledged. Raises `HeadraceError`.
        """
        stream = self._stream
        subjects = {lane_name(subject, stream.created): subject for subject in self._description.subjects}
        due = {} if stream.is_work_queue else {lane: subjects[lane] for lane in seek.lanes if lane in subjects}
        previous = await _all(self._read_before(subject) for subject in due.values())
        moves = {
            lane: LaneMove(before, min(max(seek.lanes[lane], stream.first, 1), stream.last + 1))
            for lane, before in zip(due, previous, strict=True)
        }
        return await seek.begin(moves) if moves else {}

    async def take_over(self, moved: Mapping[str, int]) -> list[Lane]:
        """Return the lanes. The consumer of each delivers the first message that is not acknowledged next. Raises `HeadraceError`.

        Lanes in `moved` are read from this sequence on.
        """
        subjects = self._description.subjects
        return await _all(self._take_over(subject, moved.get(lane_name(subject, self._stream.created))) for subject in subjects)

    async def check_end(self, moved: Mapping[str, int]) -> None:
        """Check that the stream ends at or after what was read. Lanes in `moved` are read from another sequence on.

        Raises:
            UpstreamError: The server has lost messages that were read.
        """
        for subject in self._description.subjects:
            if lane_name(subject, self._stream.created) in moved:
                continue
            name = consumer_name(self._description.durable, subject)
            known = {one: self._infos[one] for one in (name, name + FLOOR_SUFFIX) if one in self._infos}
            floor, ends = max(map(last_floor, known.values()), default=0), [note_of(info).end for info in known.values()]
            end = next((one for one in ends if one is not None), None)
            if end is None and floor > self._stream.last:
                # The former reader may have acknowledged a message that is newer than this look at the stream.
                last = (await look_at_stream(self._client, self._description.stream)).last
                if floor > last:
                    end = last
                    await _all(self._note_end(one, subject, info, floor, end) for one, info in known.items())
            if end is not None:
                log.error("messages lost at the server", consumer=name, first=end + 1, last=floor)
                raise UpstreamError(
                    f"Messages may be lost: stream {self._description.stream!r} ends or ended at sequence {end}, and was read up to "
                    f"{floor}. The server has lost its end. New messages have the sequences of lost ones.",
                    hint=f"Give the upstream another durable name, with start={end + 1}: it is another stream then. "
                    f"If its events have ids of their own, a seek to sequence {end + 1} keeps the name.",
                )

    async def _note_end(self, name: str, subject: str, info: Info, floor: int, end: int) -> None:
        """Note in the description of a consumer that the stream ends before its floor. A consumer that does not take it stays as it is."""
        own = {key: value for key, value in info["config"].items() if key != "name"}
        text = self._note(floor, end).text(note_of(info).mark)
        try:
            await self._create({**own, "durable_name": name, "description": text})
        except HeadraceError as error:
            log.warning("end of a stream of nats not noted", consumer=name, subject=subject, error=str(error))

    async def _read_before(self, subject: str) -> int | None:
        """Return the sequence that would be read next without a seek, or None if there is no consumer yet."""
        name = consumer_name(self._description.durable, subject)
        info = self._infos.get(name) or self._infos.get(name + FLOOR_SUFFIX)
        return None if info is None else await _next_sequence(self._client, self._description.stream, self._stream, info)

    async def _take_over(self, subject: str, moved: int | None) -> Lane:
        stream, name = self._stream, consumer_name(self._description.durable, subject)
        lane = Lane(
            lane_name(subject, stream.created),
            subject,
            name,
            acks_each=stream.is_work_queue,
            covers_stream=stream.is_covered_by(subject),
        )
        info, floor_consumer = self._infos.get(name), self._infos.get(name + FLOOR_SUFFIX)
        if info is not None:
            self._check(name, subject, info)
        begin = self._begin(info or floor_consumer) if moved is None else begin_after(moved - 1)
        created = None
        config = self._config(name, subject, begin, self._floor_to_note(info or floor_consumer, moved))
        if moved is None and info is not None and floor_consumer is None and self._client.has_reset and not info.get("num_waiting"):
            created = await self._reset(config, info)
        if created is None:
            created = await self._make_again(config, is_there=info is not None, has_floor_consumer=floor_consumer is not None)
        old_floor = 0 if info is None or moved is not None else ack_floor(info)
        floor = max(ack_floor(created), int(begin.get("opt_start_seq", 1)) - 1, old_floor)
        seen = UNKNOWN if not floor and "opt_start_time" in begin else floor or stream.first - 1
        lane.begin(str(created["created"]), floor=floor, seen=seen, waiting=int(created.get("num_pending", 0)))
        return lane

    def _begin(self, info: Info | None) -> Mapping[str, Any]:
        """Return the fields of a consumer that continues after the floor of another one, or that begins."""
        if self._stream.is_work_queue:
            if info is None and self._description.start != "earliest":
                raise UpstreamError(f"Invalid start: stream {self._description.stream!r} is a work queue.", hint="Remove the argument.")
            return {"deliver_policy": "all"}
        if info is None:
            return begin_at(self._description.start, self._stream.last)
        if ack_floor(info) > 0:
            return begin_after(ack_floor(info))
        return {name: info["config"][name] for name in ("deliver_policy", "opt_start_seq", "opt_start_time") if name in info["config"]}

    def _floor_to_note(self, info: Info | None, moved: int | None) -> int:
        """Return the sequence up to which a lane is read, as this opening finds it."""
        if moved is not None:
            return moved - 1
        if info is None:
            return self._stream.last if self._description.start == "latest" else 0
        return last_floor(info)

    def _note(self, floor: int, end: int | None = None) -> ConsumerNote:
        return ConsumerNote.of((consumer_name(self._description.durable, one) for one in self._description.subjects), floor, end)

    def _config(self, name: str, subject: str, begin: Mapping[str, Any], floor: int) -> dict[str, Any]:
        description = self._description
        config: dict[str, Any] = {
            "durable_name": name,
            "description": self._note(floor).text(self._mark),
            "ack_policy": "explicit" if self._stream.is_work_queue else "all",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": description.max_ack_pending,
            "max_deliver": -1,
            "replay_policy": "instant",
        }
        return {**config, **({} if subject == ALL_SUBJECTS else {"filter_subject": subject}), **begin}

    async def _reset(self, config: Mapping[str, Any], info: Info) -> Info | None:
        """Return the consumer after its reset, or None if it has settings that cannot be changed."""
        name, begins = config["durable_name"], ("deliver_policy", "opt_start_seq", "opt_start_time")
        others = {key: value for key, value in config.items() if key not in begins}
        try:
            await self._create(others | {key: info["config"][key] for key in begins if key in info["config"]})
        except HeadraceError as error:
            log.info("consumer of nats not changed", consumer=name, error=str(error))
            return None
        return await self._client.api(f"Consumer {name!r} cannot be reset", f"CONSUMER.RESET.{self._description.stream}.{name}")

    async def _make_again(self, config: Mapping[str, Any], *, is_there: bool, has_floor_consumer: bool) -> Info:
        name = config["durable_name"]
        floor_consumer = name + FLOOR_SUFFIX
        if is_there and not self._stream.is_work_queue:
            if has_floor_consumer:  # of an opening that did not end: its floor may be an earlier one
                await self._delete(floor_consumer)
            await self._create({**config, "durable_name": floor_consumer})
        if is_there:
            await self._delete(name)
        created = await self._create(config)
        if has_floor_consumer or (is_there and not self._stream.is_work_queue):
            await self._delete(floor_consumer)
        return created

    async def _create(self, config: Mapping[str, Any]) -> Info:
        stream, name = self._description.stream, config["durable_name"]
        answer = await self._client.api(
            f"Consumer {name!r} cannot be created",
            f"CONSUMER.DURABLE.CREATE.{stream}.{name}",
            {"stream_name": stream, "config": config},
        )
        if answer is None or "config" not in answer:
            raise StreamError(f"Consumer {name!r} cannot be created: the server has given no description.")
        return answer

    async def _delete(self, name: str) -> None:
        """Delete a consumer, if it exists.

        A server of version 2.9 may write a file of the consumer while it removes them. It answers with an error then, although the consumer
        does not exist any more: a second request shows that.
        """
        what, subject = f"Consumer {name!r} cannot be deleted", f"CONSUMER.DELETE.{self._description.stream}.{name}"
        if await self._client.api(what, subject, none_for=(CONSUMER_NOT_FOUND, FILES_NOT_REMOVED)) is None:
            await self._client.api(what, subject, none_for=(CONSUMER_NOT_FOUND,))

    def _check(self, name: str, subject: str, info: Info) -> None:
        config = info["config"]
        if config.get("deliver_subject") or config.get("filter_subject", ALL_SUBJECTS) != subject:
            raise UpstreamError(
                f"Consumer {name!r} belongs to another program: it has another subject, or it is a push consumer.",
                hint="Give the upstream another durable name.",
            )


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of calls at once. Raises the first error when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

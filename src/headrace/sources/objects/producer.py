"""Read the objects of a bucket as a shared stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

import structlog

from headrace.core.connection import Connection
from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.values.locations import Location
from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import decode_again
from headrace.sources.files.line_splitter import LONG_LINE
from headrace.sources.group_commit import GroupCommit
from headrace.sources.objects.azure.client import AzureContainer
from headrace.sources.objects.azure.notification import parse_notification as parse_azure
from headrace.sources.objects.azure.queue import StorageQueue
from headrace.sources.objects.bucket import Bucket, Missing
from headrace.sources.objects.gcs.client import GcsBucket
from headrace.sources.objects.intake import Intake
from headrace.sources.objects.location import Selection
from headrace.sources.objects.notifications import Notifications
from headrace.sources.objects.notified import Parser
from headrace.sources.objects.reading import LineReading, metadata_message
from headrace.sources.objects.s3.client import S3Bucket
from headrace.sources.objects.s3.notification import parse_notification as parse_s3
from headrace.sources.objects.state import State
from headrace.sources.objects.tracker import ObjectPosition, TrackedObject, Tracker
from headrace.sources.sqs.upstream import SQS
from headrace.triggers.raw_event import Message
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer

ReadMode: TypeAlias = Literal["metadata", "lines"]
"""What becomes a raw event: an object, or a line of it."""

MAX_NAMED_LOSSES: Final = 100
"""Objects that were missing before they were done, in the report of the stream."""

BUCKETS: Final[Mapping[str, Callable[[Connection, str], Awaitable[Bucket]]]] = {
    "s3": S3Bucket.open,
    "gs": GcsBucket.open,
    "az": AzureContainer.open,
}
"""How a bucket is opened, by the scheme of its location."""
PARSERS: Final[Mapping[str, Parser]] = {"s3": parse_s3, "az": parse_azure}
"""How a notification is read, by the scheme."""

log = structlog.get_logger(__name__)


class Description(NamedTuple):
    """The arguments of an `ObjectStore`, as its producer needs them."""

    stream: str
    location: Location
    pattern: str
    state: Location
    read: ReadMode
    decode: Decoding
    interval: float | None
    notifications: SQS | StorageQueue | None
    connection: str

    @property
    def selection(self) -> Selection:
        """Which objects are read."""
        is_same = self.state.bucket == self.location.bucket
        return Selection(self.location.prefix, self.pattern, self.state.prefix if is_same else None)


class _Opened(NamedTuple):
    """The parts of an open stream."""

    buckets: Sequence[Bucket]
    state: State
    tracker: Tracker
    intake: Intake
    notifications: Notifications | None
    lines: LineReading


class ObjectProducer(SharedStreamProducer):
    """The producer of an `ObjectStore`. `advance` records in the bucket which objects are finished, with one write for all waiting lanes.

    An object with a failed raw event is not finished. It is read again, from that raw event on, when the upstream is opened next.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self._problems: dict[str, str] = {}
        self._losses: dict[str, str] = {}
        self._opened: _Opened | None = None
        self._commits: GroupCommit[Sequence[TrackedObject], None] = GroupCommit(self._write)

    async def open_stream(self) -> AsyncIterator[tuple[Message, ObjectPosition]]:
        """Take over the state, and yield objects or lines without end.

        Raises:
            UpstreamError: The connection, the bucket or a permission is missing, or the state is of another upstream or event log.
            UpstreamFenced: Another reader opens the upstream at the same time.
            StreamError: The service does not answer.
        """
        opened = await self._open()
        if self._description.read == "metadata":
            while True:
                tracked = await opened.intake.next()
                yield metadata_message(self._description.location.bucket, tracked), ObjectPosition(tracked)
        while True:
            tracked, first = await opened.lines.next()
            try:
                async with aclosing(opened.lines.lines(tracked, first)) as lines:
                    async for item in lines:
                        yield item
                # The notifications of an object that is finished already are deleted here if that has failed before.
                if tracked.is_done and (opened.tracker.is_open(tracked) or tracked.parts):
                    await self._record([tracked])
                opened.lines.end(tracked)
            except Missing:
                await self._lose(opened, tracked)
            except UpstreamFenced:
                raise
            except HeadraceError as error:
                if isinstance(error, UpstreamError):  # of this object, or of all: a stream without listings would not notice
                    await opened.state.check_access()
                opened.lines.fail(tracked, error)

    async def _open(self) -> _Opened:
        description = self._description
        connection = await aget_connection(description.connection)
        open_bucket = BUCKETS[description.location.scheme]
        bucket = await open_bucket(connection, description.location.bucket)
        buckets = [bucket]
        try:
            state_bucket = bucket
            if description.state.bucket != description.location.bucket:
                state_bucket = await open_bucket(connection, description.state.bucket)
                buckets.append(state_bucket)
            state = State(state_bucket, description.state.prefix, description.stream)
            await state.open(self.log)
            selection = description.selection
            tracker = Tracker(state.finished)
            intake = Intake(bucket, selection, description.interval, tracker, state, self._problems)
            lines = LineReading(bucket, intake, decoder_of(description.decode))
            notifications = None
            if description.notifications is not None:
                queue = description.notifications.producer()
                parse = PARSERS[description.location.scheme]
                notifications = Notifications(queue, parse, bucket, description.location.bucket, selection, tracker)
            self._opened = _Opened(buckets, state, tracker, intake, notifications, lines)
            intake.start([tracker.resume(entry) for entry in state.opened.values()], notifications)
        except BaseException:
            if self._opened is None:
                for one in buckets:
                    await one.aclose()
            raise
        return self._opened

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Record what is finished, then delete the notifications of finished objects.

        Raises:
            UpstreamFenced: Another reader has taken over the state.
            StreamError: The service does not answer.
            UpstreamError: A permission is missing.
        """
        if self._description.read == "metadata":
            for position, outcome in batch:
                position.tracked.is_held |= outcome.failed > 0
                position.tracked.has_ended = True
            await self._record([position.tracked for position, _ in batch if not position.tracked.is_held])
            return
        done = list(takewhile(lambda item: not item.outcome.failed, batch))
        tracked: TrackedObject = batch[0].broker_payload.tracked
        if done and not tracked.is_held:
            furthest = max(item.broker_payload.end for item in done)
            if furthest > tracked.at:
                tracked.at = furthest
                tracked.committing = max(item.broker_payload.start for item in done)
            await self._record([tracked])
        if len(done) < len(batch) and not tracked.is_held:
            tracked.is_held = True
            log.warning("line failed, to be read again", lane=tracked.lane, position=batch[len(done)].broker_payload.start)

    def get_advance_lane(self, broker_payload: ObjectPosition) -> Hashable:
        """Return the object's lane, or the bucket if objects are the raw events."""
        return self._description.location.bucket if self._description.read == "metadata" else broker_payload.tracked.lane

    def get_position(self, broker_payload: ObjectPosition) -> int | None:
        """Return the byte offset at which the line starts. Objects have no position."""
        return None if self._description.read == "metadata" else broker_payload.start

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the start of the object's last line, or its size until the end has been read."""
        return None if self._opened is None or self._description.read == "metadata" else self._opened.tracker.lane_end(str(lane))

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the start of the last line that the state has as done."""
        return None if self._opened is None or self._description.read == "metadata" else self._opened.tracker.committed(str(lane))

    def get_errors(self) -> Mapping[str, str]:
        """Return why the bucket, the notifications or single objects cannot be read now, and which objects are lost."""
        errors = self._losses | self._problems
        if (opened := self._opened) is not None:
            errors |= opened.lines.errors()
            if opened.notifications is not None:
                errors |= opened.notifications.errors()
        return errors

    async def decode_again(self, message: Message) -> Message:
        """Return a malformed line, decoded again, unless it was cut."""
        return message if message.malformed == LONG_LINE else decode_again(decoder_of(self._description.decode), message)

    async def aclose(self) -> None:
        """End the requests, and make the notifications visible whose objects are not finished."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        try:
            await opened.intake.aclose()
            await opened.lines.aclose()
            await self._commits.aclose()
        finally:
            try:
                # Also if the close is cancelled, or else their leases are extended without end.
                if opened.notifications is not None:
                    await opened.notifications.aclose()
            finally:
                for bucket in opened.buckets:
                    await bucket.aclose()

    async def _record(self, objects: Sequence[TrackedObject]) -> None:
        """Make progress durable. Then delete the notifications of what is finished."""
        opened = self._opened
        if opened is None:
            raise StreamError("The reading of the bucket has not begun.")
        if any(opened.tracker.is_open(one) for one in objects):
            await self._commits.submit(objects)
        if opened.notifications is not None:
            finished = [one for one in objects if one.is_done and one.parts]
            await opened.notifications.delete([part for one in finished for part in one.parts])
            for one in finished:
                one.parts.clear()

    async def _write(self, groups: list[Sequence[TrackedObject]]) -> list[None]:
        opened = self._opened
        if opened is None:
            raise StreamError("The reading of the bucket has ended.")
        objects = [one for one in dict.fromkeys(one for group in groups for one in group) if opened.tracker.is_open(one)]
        recorded = [(one, one.is_done, one.committing) for one in objects]
        for one, is_done, _ in recorded:
            if is_done:
                opened.state.finish(one.digest)
            else:
                opened.state.progress(one.digest, one.entry())
        await opened.state.commit(None if self.log is None else self.log.mark)
        for one, is_done, committing in recorded:
            one.committed = committing
            if is_done:
                opened.tracker.finish(one)
                self._losses.pop(one.lane, None)  # a notification has named its version after all
        return [None] * len(groups)

    async def _lose(self, opened: _Opened, tracked: TrackedObject) -> None:
        """Drop an object that was deleted or replaced before it was read to its end."""
        log.warning("object missing before it was done", lane=tracked.lane, read=tracked.owed, size=tracked.stored.size)
        if len(self._losses) < MAX_NAMED_LOSSES:
            self._losses[tracked.lane] = f"Deleted or replaced after {tracked.owed} of {tracked.stored.size} bytes were read."
        opened.lines.end(tracked)
        opened.state.drop(tracked.digest)
        opened.tracker.drop(tracked)
        if opened.notifications is not None:
            opened.notifications.delete_soon(tracked.parts)

"""Reads the shards of one stream, each in a task of its own, and watches the stream, its shards and the table.

A shard gets the next request when the stream has taken most of what was read. What the stream does not take stays at the service. A shard
that fails or is slow has no effect on the others. If records of a shard may be lost, the stream ends once all that was read of it is
answered. The next opening reports the loss, and begins after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from headrace.errors import HeadraceError, StreamEnded, StreamError
from headrace.retry import Backoff
from headrace.sources.cancellation import check_cancelled
from headrace.sources.decoding import Decoder
from headrace.sources.inbox import Inbox
from headrace.sources.kinesis.aggregation import MAGIC
from headrace.sources.kinesis.client import KinesisClient, Record, Records, Shard, StreamInfo
from headrace.sources.kinesis.lanes import LOST_POSITIONS, Checkpoint, Delivered, Lane, first_known_ms, iterator_of, ready_shards
from headrace.sources.kinesis.message import content_of, deliver
from headrace.sources.kinesis.service_errors import Throttled
from headrace.sources.kinesis.table import ProgressTable, Reader
from headrace.triggers.raw_event import Message
from headrace.triggers.stream_log import LogMark

MIN_INTERVAL_SECONDS: Final = 0.2
"""The service takes five requests per second for a shard."""
FIRST_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 10.0
THROTTLES_REPORTED: Final = 5
WATCH_SECONDS: Final = 10.0
REFRESH_MS: Final = 3_600_000
"""After this time, the checkpoint of an idle shard is stored again, so that it does not look as old as its last record."""
START_RECORDS: Final = 500
MAX_RECORDS: Final = 10_000
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""The records that one request should bring, over all shards."""
MAX_BYTES_PER_TURN: Final = 64 * 1024
"""After this size of records, other tasks run before the next one is decoded. A larger aggregated one is taken apart in a thread."""
LATE_SHARE: Final = 0.5
"""The share of the retention from which a delay is reported."""
SERVICE_PROBLEM: Final = "service"

log = structlog.get_logger(__name__)


class Reading(NamedTuple):
    """What a reader reads, and how."""

    client: KinesisClient
    table: ProgressTable
    reader: Reader
    decode: Decoder
    interval: float
    mark: Callable[[], LogMark | None]


class StreamReader:
    """Reads the shards until `stop`. `problems` names what is missing or cannot be read now, by lane."""

    def __init__(self, reading: Reading, info: StreamInfo) -> None:
        self.problems: dict[str, str] = {}
        self.lanes: dict[str, Lane] = {}
        self._reading = reading
        self._info = info
        self._shards: dict[str, Shard] = {}
        self._begun: set[str] = set()
        self._finished: set[str] = set()
        self._taken: dict[str, Checkpoint] = {}
        """The checkpoints of shards that are not begun, because their parents are not finished."""
        self._limits: dict[str, int] = {}
        self._inbox: Inbox[Delivered] = Inbox()
        self._look = asyncio.Event()
        self._stored = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reads = True

    async def start(self, stored: Mapping[str, Checkpoint]) -> None:
        """List the shards, and begin with each whose parents are finished. `stored` is the progress by shard. Raises `HeadraceError`."""
        self._finished.update(shard for shard, checkpoint in stored.items() if checkpoint.is_finished)
        await self._discover(stored)
        self._run(self._watch(), "watch")

    async def remove_old(self, lanes: Mapping[str, Checkpoint]) -> None:
        """Delete the stored progress of shards that the stream no longer has, and report the ones not finished.

        Until the retention has passed, the progress stays: a list of shards without this one would be wrong.
        """
        current = {self._reading.reader.lane(shard) for shard in self._shards}
        for name in lanes.keys() - current:
            stored, shard = lanes[name], name.rpartition("@")[0]
            is_own = self._reading.reader.lane(shard) == name
            if is_own and not stored.may_be_lost(_now_ms() - self._info.retention_ms):
                continue
            if is_own and not stored.is_finished:
                self.problems[f"{name} (lost records)"] = (
                    f"The stream has no shard {shard} any more: the retention has deleted its records after position {stored.position}."
                )
                log.error("shard of kinesis deleted before it was finished", lane=name, position=stored.position)
            await self._reading.table.delete(name)

    async def next(self) -> tuple[Message, Delivered]:
        """Return the next message. Raises the error that ended the reading, once all messages before it are taken."""
        return await self._inbox.next()

    @property
    def failure(self) -> HeadraceError | None:
        """The error that ended the reading, or None."""
        return self._inbox.failure

    @property
    def unread(self) -> int | None:
        """The number of messages that are not taken, or None while a shard has records that were not read."""
        is_waiting = len(self._shards.keys() - self._finished - self._begun)
        if not self.lanes or is_waiting or any(lane.at_end_ms is None for lane in self.lanes.values()):
            return None
        return len(self._inbox)

    def stop(self) -> None:
        """Request no more records."""
        self._reads = False

    def fail(self, failure: HeadraceError) -> None:
        """End the reading with this error."""
        if self.failure is None:
            self._reads = False
            self._inbox.end(failure)

    async def store(self, lane: Lane, checkpoint: Checkpoint) -> None:
        """Store a checkpoint of a lane. Raises `HeadraceError`."""
        await self._reading.table.commit(lane.name, checkpoint, self._reading.mark())
        lane.confirm(checkpoint)
        self._stored.set()
        if lane.stored.is_finished and lane.shard.id not in self._finished:
            self._finished.add(lane.shard.id)
            log.info("shard of kinesis finished", lane=lane.name)
            self._look.set()

    async def aclose(self) -> None:
        """End the tasks."""
        self._reads = False
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=f"headrace kinesis {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, HeadraceError):
            log.error("reading of kinesis failed", exc_info=error)
            error = StreamError(f"The reading of Kinesis failed: {type(error).__name__}: {error}.")
        self.fail(error)

    # Shards

    async def _discover(self, earlier: Mapping[str, Checkpoint] | None = None) -> None:
        """List the shards, and begin with each that may. `earlier` has the checkpoints of earlier openings, at the first list.

        Shards that may not begin yet get their items too: with the time from which a loss is reported.
        """
        shards = {shard.id: shard for shard in await self._reading.client.shards()}
        self._shards = shards
        for lane in self.lanes.values():
            if lane.shard.id not in shards and not lane.is_ended and lane.is_answered:
                raise StreamEnded(f"The stream has no shard {lane.shard.id} any more: the retention has deleted its records.")
        new = [shard for id, shard in shards.items() if id not in self._finished and id not in self._begun and id not in self._taken]
        for shard, stored in zip(new, await self._take_over(new, earlier or {}), strict=True):
            if stored.is_finished:
                self._finished.add(shard.id)
            else:
                self._taken[shard.id] = stored
        for shard in ready_shards(shards, self._finished, self._begun):
            name, stored = self._reading.reader.lane(shard.id), self._taken.pop(shard.id)
            self._begun.add(shard.id)
            lane = self.lanes[name] = Lane(name, shard, stored)
            self._run(self._read(lane), name)
            log.info("shard of kinesis begun", lane=name, position=stored.position)

    async def _take_over(self, shards: Sequence[Shard], earlier: Mapping[str, Checkpoint]) -> list[Checkpoint]:
        """Take the items of shards over, all at once, and return them. No request runs on after an error."""
        now_ms = _now_ms()
        tasks = [
            asyncio.create_task(
                self._reading.table.take_over(self._reading.reader.lane(shard.id), first_known_ms(shard, self._shards, earlier, now_ms))
            )
            for shard in shards
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Look regularly whether this reader is still the only one, and whether the stream and its shards are what they were."""
        backoff = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        while self._reads:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._look.wait()
            self._look.clear()
            try:
                await self._reading.table.check()
                info = await self._reading.client.describe()
                if info.created != self._info.created:
                    raise StreamEnded("The stream was deleted and created again while it was read.")
                self._info = info
                await self._discover()
            except StreamEnded:
                raise
            except StreamError as error:
                if not isinstance(error, Throttled):
                    self.problems[SERVICE_PROBLEM] = str(error)
                self._look.set()
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()
                self.problems.pop(SERVICE_PROBLEM, None)

    async def _read(self, lane: Lane) -> None:
        backoff = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        while self._reads and not lane.is_ended:
            await self._inbox.wait_for_room()
            begun = time.monotonic()
            if await self._succeeds(self._request(lane), lane, backoff):
                pause = MIN_INTERVAL_SECONDS if lane.at_end_ms is None else self._reading.interval
                await asyncio.sleep(max(0.0, begun + pause - time.monotonic()))
        if lane.is_ended:
            await self._finish(lane)

    async def _succeeds(self, request: Coroutine[Any, Any, None], lane: Lane, backoff: Backoff) -> bool:
        """Return whether a request for a lane succeeds. Report an error that may pass, and pause after it."""
        try:
            await request
        except StreamEnded:
            raise
        except StreamError as error:
            if not isinstance(error, Throttled) or backoff.tries >= THROTTLES_REPORTED:
                self.problems[lane.name] = str(error)
            await asyncio.sleep(backoff.next())
            return False
        if backoff.tries:
            backoff.reset()
            self.problems.pop(lane.name, None)
        return True

    async def _request(self, lane: Lane) -> None:
        """Request the next records of a lane once, and take them. Raises `HeadraceError`."""
        if lane.is_overtaken:
            if lane.is_answered:
                raise StreamEnded(f"The retention of the stream has overtaken lane {lane.name}: records may be lost.")
            return
        begun_ms, limit = _now_ms(), self._limits.get(lane.name, START_RECORDS)
        if lane.iterator is None:
            horizon_ms = begun_ms - self._info.retention_ms
            lane.iterator = await iterator_of(self._reading.client, lane, self._reading.reader.start_ms, horizon_ms)
        answer = await self._reading.client.records(lane.iterator, limit)
        if answer is None:
            lane.iterator = None
            return
        await self._take(lane, answer, begun_ms, at_end=not answer.behind_ms and len(answer.records) < limit)
        if not lane.is_overtaken:
            lane.iterator = answer.next
            lane.is_ended = answer.next is None
        if lane.is_ended:
            lane.reached(begun_ms, at_end=True)

    async def _take(self, lane: Lane, answer: Records, begun_ms: int, *, at_end: bool) -> None:
        new = [record for record in answer.records if lane.skip(record.sequence) is not None]
        if not lane.is_checked:
            if not new and not at_end and answer.next is not None:
                return
            await self._check(lane, new, begun_ms)
        elif new and lane.known_ms < begun_ms - self._info.retention_ms:
            lane.is_overtaken = True
            self.problems[lane.name] = "The retention deletes records before they are read."
            return
        if new:
            await self._deliver(lane, new)
        if answer.records:
            self._size_next(lane, len(answer.records), sum(len(record.data) for record in new))
        lane.reached(begun_ms if at_end else max((one.arrived_ms for one in new), default=0), at_end=at_end)
        self._report_delay(lane, answer.behind_ms)
        if not new and at_end and lane.known_ms - lane.stored.known_ms > REFRESH_MS and (refreshed := lane.refreshed()) is not None:
            await self.store(lane, refreshed)

    async def _deliver(self, lane: Lane, records: Sequence[Record]) -> None:
        """Decode records into the inbox, each message once there is room for it. Other tasks run meanwhile."""
        lane.has_more = True
        lane.reached(lane.known_ms, at_end=False)
        size = 0
        for record in records:
            size += len(record.data)
            if size > MAX_BYTES_PER_TURN:
                size = 0
                await asyncio.sleep(0)
            is_large = len(record.data) > MAX_BYTES_PER_TURN and record.data.startswith(MAGIC)
            content = await asyncio.to_thread(content_of, record, lane.shard) if is_large else None
            for item in deliver(lane, record, self._info.birthmark, self._reading.decode, content):
                await self._inbox.put(item)
            self._report_left_out(lane)
        lane.has_more = False

    async def _check(self, lane: Lane, new: list[Record], begun_ms: int) -> None:
        """Look whether the first record follows the checkpoint, store what is missing, and where the first reading begins."""
        stored = lane.stored
        first = new[0] if new else None
        is_exact = first is not None and first.sequence == stored.sequence
        if not is_exact and stored.may_be_lost(begun_ms - self._info.retention_ms):
            where = "from the start on" if stored.sequence is None else f"after {stored.sequence}"
            lost = Checkpoint(stored.position + LOST_POSITIONS, stored.sequence, stored.done, stored.arrived_ms, begun_ms)
            if first is not None:
                lost = lost._replace(sequence=first.sequence, done=0, arrived_ms=first.arrived_ms, known_ms=first.arrived_ms)
            await self.store(lane, lost)
            text = (
                f"Records {where} may be lost: the retention has deleted what arrived between {_time(stored.known_ms)} and "
                f"{_time(first.arrived_ms if first is not None else begun_ms)}. Positions go on after {lost.position}."
            )
            self.problems[f"{lane.name} (lost records)"] = text
            log.error("records of kinesis lost", lane=lane.name, after=stored.sequence)
            lane.begin(lost)
        elif stored.sequence is None and first is not None:
            # Without it, the first record after a kill could be another one: the retention goes on.
            anchored = Checkpoint(stored.position, first.sequence, 0, first.arrived_ms, stored.known_ms)
            await self.store(lane, anchored)
            lane.begin(anchored)
        lane.is_checked = True

    async def _finish(self, lane: Lane) -> None:
        """Store that a closed shard is finished, once all of its events are stored, until the table takes it. The last commit may do it."""
        backoff = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        while not lane.stored.is_finished:
            checkpoint = lane.refreshed()
            if checkpoint is not None:
                await self._succeeds(self.store(lane, checkpoint), lane, backoff)
                continue
            check_cancelled()
            self._stored.clear()
            await self._stored.wait()

    def _size_next(self, lane: Lane, records: int, size: int) -> None:
        """Choose how many records the next request may bring, by the size of the last ones and the number of shards."""
        fitting = MAX_BATCH_BYTES // max(1, len(self._begun - self._finished)) // max(1, size // records)
        self._limits[lane.name] = max(1, min(fitting, 2 * self._limits.get(lane.name, START_RECORDS), MAX_RECORDS))

    def _report_left_out(self, lane: Lane) -> None:
        name = f"{lane.name} (left out)"
        if not lane.left_out:
            return
        if name not in self.problems:
            log.warning("records of another shard left out", lane=lane.name, count=lane.left_out)
        self.problems[name] = (
            f"{lane.left_out:,} records within aggregated ones were left out: by their hash keys, they belong to another shard. "
            "The Kinesis Producer Library sends them again, other senders may not: aggregate records of one partition key only."
        )

    def _report_delay(self, lane: Lane, behind_ms: int) -> None:
        name = f"{lane.name} (delay)"
        if behind_ms > LATE_SHARE * self._info.retention_ms:
            hours, retention = behind_ms / 3_600_000, self._info.retention_ms // 3_600_000
            self.problems[name] = f"It is read {hours:.1f} h after its last record. Records are deleted after {retention} h."
        else:
            self.problems.pop(name, None)


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")

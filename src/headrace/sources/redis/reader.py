"""Read stream keys as lanes: take the leases, read pending entries again, then new ones, and go on after an outage."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, NamedTuple

import structlog

from headrace.errors import StreamError, UpstreamError
from headrace.sources.redis.client import DELETED, HELD, Call, RedisClient, StreamFacts, StreamKey, raise_first
from headrace.sources.redis.entry_ids import id_of, limited_position, position_of
from headrace.sources.redis.errors import ServerAway
from headrace.sources.redis.groups import consumer_name, next_position, plan_group
from headrace.sources.redis.lane import Arrival, Gap, Lane
from headrace.sources.redis.message import EntryFormat, StreamEntry, raw_event
from headrace.sources.redis.scripts import ACQUIRE, COMMIT, ESTABLISH, FETCH, PENDING, RELEASE, RENEW, SEEK
from headrace.triggers.raw_event import Message
from headrace.triggers.stream_log import LaneMove, LogMark, StreamSeek

MARK_BYTES: Final = 3
OPEN_SECONDS: Final = 30.0
LEASE_ATTEMPT_SECONDS: Final = 0.2
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 2.0
SERVER: Final = "server"
"""The name of the outage among the problems."""

log = structlog.get_logger(__name__)

Item = tuple[Message, StreamEntry]


class Description(NamedTuple):
    """The arguments of a `RedisStreams` upstream, as its reader needs them."""

    keys: Sequence[str]
    group: str
    connection: str
    start: str
    format: EntryFormat
    lease_seconds: int
    dead_letter_stream: str | None = None


class StreamReader:
    """The reader of one opening. `problems` names outages and missing entries."""

    def __init__(self, description: Description, client: RedisClient, *, was_read: bool) -> None:
        self._description = description
        self._client = client
        self._was_read = was_read
        self._lanes: dict[str, Lane] = {}
        self._by_name: dict[str, Lane] = {}
        self._is_interrupted = False
        self._arrived: list[Item] = []
        self.problems: dict[str, str] = {}
        self.marks: list[LogMark] = []
        """The marks of the event log that the states had when the stream opened."""

    async def open(self) -> None:
        """Take the leases and find the place of each lane.

        Raises:
            StreamError: Another reader has a lease, or the server does not answer after OPEN_SECONDS.
            UpstreamError: A right is missing, or a key has no stream.
        """
        until = time.monotonic() + OPEN_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._client.check_version()
                await self._acquire(self._keys)
                for key in self._description.keys:
                    await self._prepare(key)
                return
            except ServerAway:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def move(self, seek: StreamSeek) -> None:
        """Carry out a seek, before anything is read.

        Pending entries of a moved lane end. So the position before is that of the first of them, or the one after the committed entry.

        Raises:
            UpstreamFenced: Another reader has taken over.
            StreamError: The server does not answer, or a stream was deleted.
        """
        moves: dict[str, LaneMove] = {}
        for name in seek.lanes.keys() & self._by_name.keys():
            facts = await self._client.facts(self._key(self._by_name[name].key))
            end = limited_position("0-0" if facts.stream is None else facts.stream["last-generated-id"].decode()) + 1
            moves[name] = LaneMove(next_position(facts.state), min(max(seek.lanes[name], 1), end))
        positions = await seek.begin(moves) if moves else {}
        if not positions:
            return
        for name, position in positions.items():
            lane = self._by_name[name]
            (answer,) = raise_first(await self._client.call([self._call(SEEK, lane, id_of(position - 1))]))
            if answer[0] == DELETED:
                raise StreamError(f"Stream {lane.key!r} or its group was deleted while the stream was opened.")
            del self._lanes[lane.key]
            await self._prepare(lane.key)
        await seek.finish(positions)
        log.info("positions of Redis moved", lanes=len(positions))

    async def entries(self) -> AsyncGenerator[Sequence[Item], None]:
        """Yield what arrives without end: pending entries of each lane first, then new ones.

        Raises:
            UpstreamFenced: Another reader has taken over.
            StreamError: Entries are missing before the next ones, and all delivered entries are answered.
            UpstreamError: An entry or a key cannot be read.
        """
        ready = set(self._lanes)
        pause = FIRST_PAUSE_SECONDS
        failure: UpstreamError | None = None
        while failure is None:
            try:
                if self._is_interrupted:
                    await self._resume()
                    ready = set(self._lanes)
                if not ready:
                    ready = await self._wait()
                ready = await self._read(ready)
                pause = FIRST_PAUSE_SECONDS
            except ServerAway as error:
                self._note_outage(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            except UpstreamError as error:
                failure = error
            # What arrived before an error is delivered: the lanes have recorded that it is.
            if self._arrived:
                items, self._arrived = self._arrived, []
                yield items
            self._end_if_overtaken()
        raise failure

    async def commit(self, calls: Sequence[Call]) -> list[Any]:
        """Run commits in one pipeline. Return the outcome or the error of each."""
        return await self._client.call(calls)

    def commit_call(
        self, lane: Lane, ids: Sequence[bytes | str], target: int | None, mark: LogMark | None, *, passes: bool = False
    ) -> Call:
        """Return the call that acknowledges these entries."""
        written = ("", "", "") if mark is None else (mark.log, mark.stream, mark.receipts)
        committed = "" if target is None else id_of(target)
        return self._call(COMMIT, lane, committed, *written, "1" if passes else "", *ids)

    async def renew(self) -> None:
        """Prolong the leases, and count the unread entries. Raises `UpstreamFenced` or `StreamError`."""
        answers = raise_first(await self._client.call([Call(RENEW, key, "", "") for key in self._keys]))
        for name, answer in zip(self._description.keys, answers, strict=True):
            lane = self._lanes.get(name)
            if lane is not None and len(answer) > 1:
                lane.unread = None if int(answer[1]) < 0 else int(answer[1])

    async def release(self) -> None:
        """Give the leases back."""
        raise_first(await self._client.call([Call(RELEASE, key, "", "") for key in self._keys]))

    def lane(self, name: str) -> Lane | None:
        """Return the lane of this name."""
        return self._by_name.get(name)

    @property
    def unread(self) -> int | None:
        """The number of entries that were never read, or None while pending entries are read again or the server is away."""
        if self._is_interrupted or not self._lanes:
            return None
        counts = [lane.unread for lane in self._lanes.values() if lane.pending_after is None and lane.unread is not None]
        return sum(counts) if len(counts) == len(self._lanes) else None

    @property
    def _keys(self) -> list[StreamKey]:
        return [self._key(name) for name in self._description.keys]

    def _key(self, name: str) -> StreamKey:
        return StreamKey(name, self._description.group)

    def _call(self, script: str, lane: Lane, *arguments: Any) -> Call:
        return Call(script, self._key(lane.key), lane.mark, consumer_name(lane.mark), arguments)

    async def _acquire(self, keys: Sequence[StreamKey]) -> None:
        """Take the leases. Those of another reader are waited for, until they would have expired."""
        until = time.monotonic() + self._description.lease_seconds + LEASE_ATTEMPT_SECONDS
        while True:
            answers = raise_first(await self._client.call([Call(ACQUIRE, key, "", "") for key in keys]))
            held = [key for key, answer in zip(keys, answers, strict=True) if answer[0] == HELD]
            if not held:
                return
            if time.monotonic() > until:
                raise StreamError(
                    f"Stream {held[0].stream!r} has another reader with group {held[0].group!r}.",
                    hint="Stop the other reader, or give each upstream a group of its own.",
                )
            await asyncio.sleep(LEASE_ATTEMPT_SECONDS)

    async def _prepare(self, name: str) -> None:
        """Find the lane of a stream key, and create or mark its group if that is necessary."""
        key = self._key(name)
        facts = await self._client.facts(key)
        plan = plan_group(key, facts, self._description.start, secrets.token_hex(MARK_BYTES), was_read=self._was_read)
        if plan.problem is not None:
            log.warning("stream or group of Redis changed", stream=name, group=key.group, problem=plan.problem)
            self.problems[name] = plan.problem
        if plan.how is not None:
            arguments = (plan.how, plan.id, plan.mark)
            (answer,) = raise_first(await self._client.call([Call(ESTABLISH, key, "", consumer_name(plan.mark), arguments)]))
            if answer[0] == DELETED:
                await self._acquire([key])
                return await self._prepare(name)
            facts = await self._client.facts(key)
        self._set_lane(name, plan.mark, facts)
        return None

    def _set_lane(self, name: str, mark: str, facts: StreamFacts) -> None:
        state = facts.state
        old = self._lanes.get(name)
        if old is not None and old.mark == mark:
            old.resume(state["read"])
            lane = old
        else:
            if old is not None:
                old.is_replaced = True
            committed = state.get("committed")
            lane = self._lanes[name] = Lane(name, mark, None if committed is None else position_of(committed), state["read"])
            self._by_name[lane.name] = lane
            if "receipts" in state:
                self.marks.append(LogMark(state["log"], state["stream"], int(state["receipts"])))
        if facts.stream is not None:
            lane.looked(limited_position(facts.stream["last-generated-id"].decode()), at_end=False)
        if "gap_to" in state:
            self._missed(lane, Gap(state["gap_from"], limited_position(state["gap_to"])), None)

    async def _resume(self) -> None:
        """Connect again. Entries that are delivered already are skipped when they are read again."""
        answers = raise_first(await self._client.call([Call(RENEW, key, "", "") for key in self._keys]))
        lost = [key for key, answer in zip(self._keys, answers, strict=True) if answer[0] == DELETED]
        if lost:
            await self._acquire(lost)
        for key in self._description.keys:
            await self._prepare(key)
        self._is_interrupted = False
        self.problems.pop(SERVER, None)
        log.info("connection to Redis restored", streams=len(self._lanes))

    def _note_outage(self, error: ServerAway) -> None:
        if not self._is_interrupted:
            log.warning("connection to Redis lost", error=str(error))
        self._is_interrupted = True
        self.problems[SERVER] = str(error)

    async def _wait(self) -> set[str]:
        """Wait for entries. Return the stream keys that have some, or all stream keys after a while."""
        reads = {name: lane.read for name, lane in self._lanes.items() if not lane.is_held}
        if not reads:
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
            return set()
        return await self._client.wait(reads) or set(reads)

    async def _read(self, ready: set[str]) -> set[str]:
        """Read these stream keys once. Return the stream keys that may have more."""
        lanes = [self._lanes[name] for name in self._lanes if name in ready and not self._lanes[name].is_held]
        if not lanes:
            return set()
        calls = [self._read_call(lane) for lane in lanes]
        answers = raise_first(await self._client.call(calls))
        more: set[str] = set()
        for lane, answer in zip(lanes, answers, strict=True):
            if answer[0] == DELETED:
                await self._acquire([self._key(lane.key)])
                await self._prepare(lane.key)
                more.add(lane.key)
            elif await self._take(lane, answer):
                more.add(lane.key)
        return more

    def _read_call(self, lane: Lane) -> Call:
        if lane.pending_after is None:
            return self._call(FETCH, lane, lane.count)
        return self._call(PENDING, lane, lane.pending_after, lane.count)

    async def _take(self, lane: Lane, answer: list[Any]) -> bool:
        """Take the entries of one answer. Return whether the lane may have more."""
        entries: list[Any] = answer[1]
        requested, was_pending = lane.count, lane.pending_after is not None
        if was_pending:
            lane.pending_after = entries[-1][0].decode() if len(entries) == requested else None
        else:
            self._looked(lane, entries, answer, requested)
        deliveries: Sequence[int] = answer[2] if was_pending else (1,) * len(entries)
        again: list[bytes] = []
        for (id, fields), delivery in zip(entries, deliveries, strict=True):
            if not await self._take_entry(StreamEntry(lane, id, position_of(id.decode())), fields, delivery, again):
                break
        if again:
            raise_first(await self._client.call([self.commit_call(lane, again, None, None)]))
        # After a seek back, entries before the gap are read first.
        if lane.gap is not None and lane.pending_after is None and limited_position(lane.read) >= lane.gap.end:
            await self._pass_gap(lane, [])
        lane.size_next(len(entries), sum(sum(map(len, fields)) for _, fields in entries if fields is not None), len(self._lanes))
        return not lane.is_held and (was_pending or len(entries) == requested)

    async def _take_entry(self, entry: StreamEntry, fields: Sequence[bytes] | None, delivery: int, again: list[bytes]) -> bool:
        """Deliver an entry, or add it to `again` to acknowledge it again. Return False if the lane is held before it."""
        lane = entry.lane
        if fields is None and not lane.is_delivered(entry.position):
            self._missed(lane, Gap(id_of(entry.position - 1), entry.position), 1)
            return await self._pass_gap(lane, [entry.id])
        if lane.gap is not None and entry.position > lane.gap.end:
            await self._pass_gap(lane, [])
        arrival = lane.arrive(entry.position)
        if arrival is Arrival.ACKNOWLEDGE:
            again.append(entry.id)
        elif arrival is Arrival.DELIVER and fields is not None:
            self._arrived.append((raw_event(self._description.format, entry, fields, delivery), entry))
        return arrival is not Arrival.HOLD

    def _looked(self, lane: Lane, entries: list[Any], answer: list[Any], requested: int) -> None:
        """Record the answer of `FETCH`: the end of the stream, and missing entries."""
        last, missing, gap_from, gap_to = answer[2].decode(), int(answer[3]), answer[4].decode(), answer[5].decode()
        is_full = len(entries) == requested
        lane.read = entries[-1][0].decode() if is_full else last
        lane.unread = int(answer[6])
        lane.looked(limited_position(last), at_end=not is_full)
        if missing > 0:
            self._missed(lane, Gap(gap_from, limited_position(gap_to)), missing)

    def _missed(self, lane: Lane, gap: Gap, missing: int | None) -> None:
        lane.missed(gap)
        count = "" if missing is None else f" {missing}"
        log.error("entries of Redis missing", lane=lane.name, entries=missing, gap=str(gap))
        self.problems[lane.name] = (
            f"Entries are missing:{count} {gap}. They were removed before they were answered, or another consumer of the group has them."
        )

    async def _pass_gap(self, lane: Lane, removed: Sequence[bytes]) -> bool:
        """Pass the gap of a lane of which nothing is delivered. Otherwise hold the lane, and return False."""
        if not lane.pass_gap():
            return False
        raise_first(await self._client.call([self.commit_call(lane, removed, lane.committed, None, passes=True)]))
        return True

    def _end_if_overtaken(self) -> None:
        """End the stream once all that a held lane has delivered is answered. It names the gap when it opens again."""
        for lane in self._lanes.values():
            if lane.is_held and lane.is_drained:
                raise StreamError(f"Entries of lane {lane.name} {lane.gap} are missing.", hint="The stream opens again after them.")

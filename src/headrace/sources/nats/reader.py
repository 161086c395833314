"""Pulls messages of all lanes of one stream, and watches that the server, the stream and the consumers are what they were.

A lane asks for one batch at a time, and for the next one when the stream has taken half of the last. So what the stream does not take stays
at the server. The server sends a heartbeat while it has nothing to deliver: a request without any answer ends the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import structlog

from headrace.errors import HeadraceError, StreamError, UpstreamFenced
from headrace.sources.declared_decoder import Decoding
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumers import StreamInfo, look_at_consumer, look_at_stream
from headrace.sources.nats.lanes import Delivered, Lane, parse_origin
from headrace.sources.nats.message import raw_event
from headrace.sources.nats.service_errors import described
from headrace.triggers.raw_event import Message

BATCH_MESSAGES: Final = 500
MAX_BUFFERED_BYTES: Final = 16 * 1024 * 1024
"""Delivered messages that the stream has not taken yet, over all lanes, if each lane may have the largest message of the server."""
OVERHEAD_BYTES: Final = 8 * 1024
EXPIRES_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 5.0
SILENT_HEARTBEATS: Final = 3
WATCH_SECONDS: Final = 5.0
MAX_REPORTED_GAPS: Final = 1_000
NS: Final = 1_000_000_000
LIMITS: Final = "limits"

DELETED: Final = ("consumer deleted", "consumer not found")
RENEWED: Final = ("batch completed", "message size exceeds maxbytes", "exceeded maxwaiting", "leadership change")
"""Ends of a request after which the lane asks again."""

log = structlog.get_logger(__name__)


class _Request:
    """The request of a lane that the server answers now."""

    __slots__ = ("answered_at", "number", "remaining")

    def __init__(self, number: int) -> None:
        self.number = number
        self.remaining = 0
        self.answered_at = 0.0


class Reader:
    """Reads the lanes until `stop`. `problems` names what is missing, by lane."""

    def __init__(self, client: NatsClient, stream: str, info: StreamInfo, lanes: Sequence[Lane], decode: Decoding) -> None:
        self.problems: dict[str, str] = {}
        self.failure: HeadraceError | None = None
        self._client = client
        self._stream = stream
        self._info = info
        self._lanes = lanes
        self._decode: Decoding = decode
        self._inboxes: dict[str, str] = {}
        self._requests = {lane.name: _Request(0) for lane in lanes}
        self._buffered = dict.fromkeys(self._requests, 0)
        self._inbox: deque[tuple[Message, Delivered]] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._reads = True
        self._max_bytes = max(client.max_payload + OVERHEAD_BYTES, MAX_BUFFERED_BYTES // len(lanes))

    async def start(self) -> None:
        """Subscribe, report what is missing already, and begin to pull."""
        self._look_for_gaps(self._info.first)
        for lane in self._lanes:
            if lane.covers_stream and lane.seen > lane.delivered > 0:
                lane.lost = lane.seen
            self._inboxes[lane.name] = await self._client.subscribe(partial(self._receive, lane))
        for run, name in ((self._pull, "pulls"), (self._watch, "watch")):
            task = asyncio.create_task(run(), name=f"headrace nats {name}")
            task.add_done_callback(self._report)
            self._tasks.append(task)

    async def next(self) -> tuple[Message, Delivered]:
        """Return the next message. Raises the error that ended the reading, once all messages before it are taken."""
        while not self._inbox:
            if self.failure is not None:
                raise self.failure
            self._arrived.clear()
            await self._arrived.wait()
        item = self._inbox.popleft()
        lane = item[1].lane.name
        self._buffered[lane] -= 1
        if self._buffered[lane] <= BATCH_MESSAGES // 2 and not self._requests[lane].remaining:
            self._room.set()
        return item

    @property
    def unread(self) -> int:
        """The number of messages that are not taken, here and at the server."""
        return len(self._inbox) + sum(lane.waiting for lane in self._lanes)

    def stop(self) -> None:
        """Request no more messages from the server."""
        self._reads = False

    def fail(self, failure: HeadraceError) -> None:
        """End the reading with this error."""
        if self.failure is None:
            self.failure = failure
            self._reads = False
            self._arrived.set()

    async def aclose(self) -> None:
        """End the tasks."""
        self._reads = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(described("The reading of NATS failed", error))

    async def _pull(self) -> None:
        while True:
            self._room.clear()
            for lane in self._lanes:
                request = self._requests[lane.name]
                if self._reads and not request.remaining and self._buffered[lane.name] <= BATCH_MESSAGES // 2:
                    request.number += 1
                    request.remaining = BATCH_MESSAGES
                    request.answered_at = time.monotonic()
                    await self._client.ask(
                        f"CONSUMER.MSG.NEXT.{self._stream}.{lane.consumer}",
                        {
                            "batch": BATCH_MESSAGES,
                            "expires": int(EXPIRES_SECONDS * NS),
                            "idle_heartbeat": int(HEARTBEAT_SECONDS * NS),
                            "max_bytes": self._max_bytes,
                        },
                        f"{self._inboxes[lane.name]}.{request.number}",
                    )
            await self._room.wait()

    async def _receive(self, lane: Lane, message: Any) -> None:
        """Take a message or a status. The client calls this for one after the other, and loses its errors."""
        if self.failure is not None:
            return
        try:
            origin = parse_origin(message.reply)
            if origin is None:
                self._receive_status(lane, message)
                return
            request = self._requests[lane.name]
            request.answered_at = time.monotonic()
            if request.remaining:
                request.remaining -= 1
                if not request.remaining:
                    self._room.set()
            if lane.covers_stream:
                self._look_for_gap(lane, origin.sequence)
            if not lane.receive(origin):
                return
            event = raw_event(message.data, message.headers, subject=message.subject, lane=lane.name, origin=origin, decode=self._decode)
            self._inbox.append((event, Delivered(lane, origin.sequence, message.reply)))
            self._buffered[lane.name] += 1
            self._arrived.set()
        except Exception as error:
            self.fail(described("A message of NATS cannot be read", error))

    def _receive_status(self, lane: Lane, message: Any) -> None:
        from nats.js.api import Header

        request = self._requests[lane.name]
        if message.subject.rpartition(".")[2] != str(request.number):
            return  # of an earlier request
        request.answered_at = time.monotonic()
        headers = message.headers or {}
        status, text = headers.get(Header.STATUS, ""), " ".join(str(headers.get(Header.DESCRIPTION, "")).split())
        if status == "100":
            return
        if text.lower() in DELETED or status == "503":
            self.fail(UpstreamFenced(f"Another reader has taken over consumer {lane.consumer}, or it was deleted: {text}."))
        elif status in ("404", "408") or text.lower().startswith(RENEWED):
            request.remaining = 0
            self._room.set()
        else:
            self.fail(StreamError(f"The messages of lane {lane.name} cannot be read: {status} {text}.".replace(" .", ".")))

    async def _watch(self) -> None:
        """Look regularly whether the server answers, and whether the stream and the consumers are what they were."""
        before: dict[str, int] = {}
        while True:
            await asyncio.sleep(min(WATCH_SECONDS, HEARTBEAT_SECONDS))
            self._check_heartbeats()
            info = await look_at_stream(self._client, self._stream)
            if info.created != self._info.created:
                raise StreamError(f"Stream {self._stream!r} was deleted and created again.")
            self._look_for_gaps(info.first)
            for lane in self._lanes:
                before[lane.name] = await self._look_at_lane(lane, info.last, before.get(lane.name, 0))

    async def _look_at_lane(self, lane: Lane, last: int, delivered_before: int) -> int:
        """Compare the consumer of a lane with what arrived here. Return the number of its last delivery."""
        info = await look_at_consumer(self._client, self._stream, lane.consumer)
        if info is None or info["created"] != lane.created:
            raise UpstreamFenced(f"Another reader has taken over consumer {lane.consumer}, or it was deleted.")
        delivered = int(info["delivered"]["consumer_seq"])
        if delivered_before > lane.consumer_sequence:
            raise StreamError(
                f"Deliveries {lane.consumer_sequence + 1} to {delivered_before} of consumer {lane.consumer} went to another program.",
                hint="Stop the program that reads with this consumer, or give the upstream another durable name.",
            )
        if delivered == lane.consumer_sequence:
            waiting = int(info["num_pending"])
            lane.expect(waiting)
            if not waiting:
                lane.seen = max(lane.seen, last)
        return delivered

    def _check_heartbeats(self) -> None:
        limit = SILENT_HEARTBEATS * HEARTBEAT_SECONDS
        for lane in self._lanes:
            request = self._requests[lane.name]
            if request.remaining and time.monotonic() - request.answered_at > limit:
                raise StreamError(
                    f"NATS has sent nothing for lane {lane.name} for {limit:g} s, not even a heartbeat.",
                    hint="Is the network between here and the server interrupted? Does the consumer exist?",
                )

    def _look_for_gaps(self, first: int) -> None:
        """Report what the server has removed before the sequence `first`."""
        for lane in self._lanes:
            self._look_for_gap(lane, first)
            name = f"{lane.name}, not answered"
            if lane.oldest is None or lane.oldest >= first or self._info.retention != LIMITS:
                self.problems.pop(name, None)
            elif name not in self.problems:
                log.warning("messages removed by the server before they were answered", lane=lane.name, first=lane.oldest, last=first - 1)
                self.problems[name] = (
                    f"The server removed messages from {lane.oldest} on before they were answered. They are here, and are lost if this "
                    "reader ends before they are answered. A limit of the stream is too low."
                )

    def _look_for_gap(self, lane: Lane, sequence: int) -> None:
        """Report the messages before `sequence` that the server has removed and that were not delivered."""
        gap = lane.missing_before(sequence)
        if gap is None:
            return
        some = "" if lane.covers_stream else "Some of them may be of this lane. "
        log.error("messages removed by the server", lane=lane.name, first=gap[0], last=gap[1], certain=lane.covers_stream)
        if len(self.problems) < MAX_REPORTED_GAPS:
            self.problems[lane.name] = (
                f"Messages {gap[0]} to {gap[1]} of the stream are missing. {some}"
                "The server removed them before they were read: a limit of the stream is too low, or they were purged."
            )

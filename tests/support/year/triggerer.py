"""A triggerer's streams in one process with the api's store.

A real folder and a real manager, on the real way into the store, without HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, cast

from headrace.ports.triggerer_api import TriggererApi
from headrace.sources.directory.upstream import Directory
from headrace.store.log.log import stored
from headrace.streams.manager import SharedStreamManager
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.receipt_recorder import ApiReceiptRecorder
from headrace.triggerer.outbox.sink import OutboxSink
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.runner.stream_reports import heartbeat
from headrace.triggers.watch import WatchTrigger
from headrace.wire.custody.events import BatchStored, EventBatch, EventItem
from headrace.wire.custody.receipts import (
    CountReceipts,
    FindLaneOffsets,
    LaneOffsets,
    ReceiptCount,
    SubscriberSetDefined,
    SubscriberSetDefinition,
)
from support.processes.api_twin import ApiTwin
from support.processes.store import Holder
from support.sources.streams import KEY, Feed, Kept, reads

PATIENCE_SECONDS = 600
POLL_SECONDS = 0.02
READY = '{"ready":true}'


class StoreControl(ApiTwin):
    """Those calls of the execution API that streams make, straight to the store of `owner`."""

    def __init__(self, owner: Holder) -> None:
        self._owner = owner

    async def store(self, batch: EventBatch) -> BatchStored:
        return stored(await asyncio.wrap_future(self._owner.store.log.append_later(self._owner.job_id, batch)))

    async def count_receipts(self, wanted: CountReceipts) -> ReceiptCount:
        return self._owner.store.stream_logs.count_receipts(self._owner.job_id, wanted.stream)

    async def recorded_offsets(self, wanted: FindLaneOffsets) -> LaneOffsets:
        return self._owner.store.receipts.recorded_offsets(self._owner.job_id, wanted.stream, wanted.lanes)

    async def define_subscriber_set(self, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        return self._owner.store.receipts.define(self._owner.job_id, subscriber_set)


class Triggerer:
    """Watches on a folder, and triggers of task runs that come and go on a stream in memory. All calls in one loop."""

    def __init__(self, owner: Holder, folder: Directory, path: Path) -> None:
        self.owner = owner
        self.path = path
        self.key = folder.stream_key()
        self._watches = {one: WatchTrigger(upstream=folder) for one in owner.epochs}
        self._outbox = Outbox()
        control = cast(TriggererApi, StoreControl(owner))
        sealer = OutboxSink(self._outbox, lambda seq: self.manager.mark_rejected(seq), _ended, _failed)
        self.manager = SharedStreamManager(sink=sealer, recorder=ApiReceiptRecorder(control, self._outbox))
        self._uploader = Uploader(control, self._outbox, self.manager, lambda ids: {one: self.owner.epochs.get(one, 0) for one in ids})
        self._feed = Feed()
        self._reads = reads(self._feed)
        self._filters: dict[int, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._lane = 0

    async def start(self) -> None:
        """Begin to upload what fires."""
        self._tasks = [asyncio.create_task(self._uploader.run())]

    async def close(self) -> None:
        """Stop every stream."""
        await self.manager.stop_all()
        for task in [*self._tasks, *self._filters.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._filters.values(), return_exceptions=True)

    async def reopen(self) -> float:
        """Open the folder's stream again; return the seconds until its first line was read, of a file that is there already."""
        await self.manager.stop(self.key)
        read = self.manager.statistics(self.key).counters.read
        put(self.path / "opened.jsonl", [b'{"opened":true}'])
        begun = perf_counter()
        self.manager.watch(triggers=self._watches, key=self.key)
        await self._until(lambda: self.manager.statistics(self.key).counters.read > read)
        took = perf_counter() - begun
        await self._settled()
        return took

    async def read_files(self, day: int, files: int, lines: int, line_bytes: int, random: Random) -> float:
        """Put a day's files into the folder; return the seconds until all are read, stored, advanced and moved away."""
        begun = perf_counter()
        for number in range(files):
            put(self.path / f"{day:05}-{number:06}.jsonl", [_line(number, line, line_bytes, random) for line in range(lines)])
            if number % 50 == 0:
                await asyncio.sleep(0)
        await self._settled()
        return perf_counter() - begun

    def join(self, trigger_id: int) -> None:
        """Begin the filter of a task run's trigger: it fires on the raw event that has its number."""
        trigger = self._reads(lambda raw: raw == trigger_id)
        stream = self.manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=KEY, backlog=Kept())
        filtered = trigger.filter_shared_stream(stream)
        self._filters[trigger_id] = asyncio.create_task(self._fire(trigger_id, filtered))

    async def leave(self, trigger_id: int) -> None:
        """End the filter of a trigger that the triggerer does not hold any more."""
        task = self._filters.pop(trigger_id)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await self.manager.unregister(trigger_ids=[trigger_id], key=KEY)

    async def deliver(self, raws: Sequence[int]) -> None:
        """Give raw events to the triggers of task runs, and wait until all are advanced."""
        before = self.manager.statistics(KEY).counters.advanced
        self._feed.feed(*raws)
        await self._until(lambda: self.manager.statistics(KEY).counters.advanced >= before + len(raws))
        self._feed.batches.clear()

    async def heartbeat(self) -> bytes:
        """Return what the triggerer would tell the api of its streams."""
        return await heartbeat(self.manager, self.manager.keys())

    async def _fire(self, trigger_id: int, filtered: AsyncIterator[Any]) -> None:
        async for _ in filtered:
            seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=KEY)
            item = EventItem(id=f"fired-{trigger_id}", source="queue", type="fired", payload=READY, firings=[trigger_id])
            self._outbox.put(OutboxItem(item, seq))

    async def _settled(self) -> None:
        """Wait until the folder holds no file to read, and nothing read is owed."""
        await self._until(lambda: not _has_files(self.path) and self.manager.statistics(self.key).outstanding == 0)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(POLL_SECONDS)


def put(path: Path, lines: Sequence[bytes]) -> None:
    """Put a whole file into a folder that is watched."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(b"\n".join(lines) + b"\n")
    part.rename(path)


def _has_files(path: Path) -> bool:
    with os.scandir(path) as entries:
        return any(entry.name.endswith(".jsonl") for entry in entries)


def folder_figures(path: Path) -> dict[str, float]:
    """Return what the source keeps on the disk: its journal, and the finished files."""
    days = list((path / "done").iterdir())
    return {
        "journal bytes": float((path / ".headrace" / "progress.jsonl").stat().st_size),
        "finished files": float(sum(len(list(folder.iterdir())) for folder in days)),
        "days of finished files": float(len(days)),
    }


def remove(path: Path) -> None:
    """Remove the folder with all finished files."""
    shutil.rmtree(path)


def _line(number: int, line: int, size: int, random: Random) -> bytes:
    head = f'{{"file":{number},"line":{line},"text":"'.encode()
    # Hexadecimal, so that no storage takes less than is said.
    return head + random.randbytes(max(1, (size - len(head) - 2) // 2)).hex().encode() + b'"}'


def _ended(key: str, trigger_ids: Sequence[int], error: Exception) -> None:
    raise AssertionError(f"the stream {key} of {len(trigger_ids)} triggers ended") from error


def _failed(key: str, trigger_id: int, error: Exception) -> None:
    raise AssertionError(f"trigger {trigger_id} of {key} failed") from error

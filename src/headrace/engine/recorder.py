"""Record receipts with the api, those of several lanes in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from headrace.core.custody import Receipt
from headrace.engine.insist import insist
from headrace.ports.control_plane import TriggererControl
from headrace.wire import custody as wire

_MOST = 500  # receipts in one call


@dataclass
class _Waiting:
    receipt: Receipt
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ApiRecorder:
    """A `Recorder` over the machine API: what comes while one call is in flight travels in the next."""

    def __init__(self, api: TriggererControl, epochs: Callable[[Iterable[int]], dict[int, int]]) -> None:
        self._api = api
        self._epochs = epochs
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def marks(self, stream: str) -> Mapping[str, int]:
        """Return how far the custody of each lane is recorded."""
        answer = await insist(lambda: self._api.marks(stream), "custody marks")
        return {mark.lane: mark.last for mark in answer.marks}

    async def record(self, receipt: Receipt) -> None:
        """Record the receipt durably; raises what the api refuses it with."""
        waiting = _Waiting(receipt)
        self._waiting.append(waiting)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="custody")
        await waiting.done

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                try:
                    await insist(partial(self._post, batch), "custody")
                except Exception as error:
                    _finish(batch, error)
                else:
                    _finish(batch, None)
        finally:
            self._sending = None

    async def _post(self, batch: list[_Waiting]) -> None:
        receipts = [_wired(waiting.receipt) for waiting in batch]
        owed = {trigger_id for receipt in receipts for trigger_id in receipt.owed}
        await self._api.receipts(wire.Receipts(epochs=self._epochs(owed), receipts=receipts))


def _finish(batch: list[_Waiting], error: Exception | None) -> None:
    """Tell those who wait; one whose advance was cancelled waits no more."""
    for waiting in batch:
        if waiting.done.done():
            continue
        if error is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(error)


def _wired(receipt: Receipt) -> wire.Receipt:
    answers = [wire.Answers.model_validate(answers._asdict()) for answers in receipt.answers]
    return wire.Receipt(
        stream=receipt.stream,
        lane=receipt.lane,
        after=receipt.after,
        last=receipt.last,
        read=receipt.read,
        owed=list(receipt.owed),
        answers=answers,
    )

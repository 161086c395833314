"""Record receipts with the api: they travel in the next batch of what triggers fired."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.core.custody import Receipt
from headrace.engine.insist import insist
from headrace.engine.outbox import Outbox, Pending
from headrace.errors import ApiRefused, Fenced
from headrace.ports.control_plane import TriggererControl
from headrace.wire import custody as wire
from headrace.wire.events import ItemStatus


class ApiRecorder:
    """A `Recorder` over the machine API.

    A call of its own for each receipt would be a second commit for each batch of events, and take as long again: see
    docs/design/benchmarks.md.
    """

    def __init__(self, api: TriggererControl, outbox: Outbox) -> None:
        self._api = api
        self._outbox = outbox

    async def marks(self, stream: str) -> Mapping[str, int]:
        """Return how far the custody of each lane is recorded."""
        answer = await insist(lambda: self._api.marks(stream), "custody marks")
        return {mark.lane: mark.last for mark in answer.marks}

    async def record(self, receipt: Receipt) -> None:
        """Return once the receipt is recorded durably.

        Raises:
            Fenced: Another job holds a trigger that had to answer.
            ApiRefused: The api cannot take the receipt as it is.
        """
        recorded: asyncio.Future[ItemStatus] = asyncio.get_running_loop().create_future()
        self._outbox.put_first(Pending(_wired(receipt), stored=recorded))
        status = await recorded
        if status == "fenced":
            raise Fenced(f"Another triggerer reads {receipt.stream} now: lane {receipt.lane} is not advanced here.", problem="fenced")
        if status == "invalid":
            raise ApiRefused(f"The api does not take the receipt of lane {receipt.lane} of {receipt.stream}.", problem="invalid")


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

"""POST /execution/triggers/{id}/event and …/{id}/backlog: batches of one, whose one answer is that of the call."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import DurableOf, StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.http.wire_route import WireAnswer, WireRoute
from headrace.store.log.log import stored
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import EventBatch, ItemStatus
from headrace.wire.singles import OneEvent, OneSpill, OneStored

router = APIRouter(prefix="/execution/triggers", tags=["log"], route_class=WireRoute)


@router.post("/{trigger_id}/event", response_model=OneStored)
async def append_one(trigger_id: int, given: OneEvent, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Store one event; commits that arrive together are one."""
    if trigger_id not in given.event.firings:
        hint = "Name the trigger of the path in `firings`."
        raise Refusal(422, "invalid", f"event.firings: trigger {trigger_id} of the path is not among them.", hint=hint)
    batch = EventBatch(epochs=given.epochs, events=[given.event])
    answered = stored(await durable(store.log.append_later(caller.job_id, batch)))
    return _answer(trigger_id, answered.events[0])


@router.post("/{trigger_id}/backlog", response_model=OneStored)
async def spill_one(trigger_id: int, given: OneSpill, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Keep one raw event in the trigger's backlog."""
    item = SpillItem(
        stream=given.stream, lane=given.lane, position=given.position, delivery_id=given.delivery_id, raw=given.raw, triggers=[trigger_id]
    )
    batch = EventBatch(epochs={trigger_id: given.epoch}, spills=[item])
    answered = stored(await durable(store.log.append_later(caller.job_id, batch)))
    return _answer(trigger_id, answered.spills[0])


def _answer(trigger_id: int, status: ItemStatus) -> Response:
    if status == "fenced":
        raise Refusal(409, "fenced", f"Trigger {trigger_id}, or another that fired, is held under a newer epoch or by another job.")
    if status == "invalid":
        raise Refusal(422, "invalid", "This cannot be stored: the api's log says why.")
    return WireAnswer(OneStored(status=status))

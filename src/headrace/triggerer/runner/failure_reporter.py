"""Tell the api which trigger failed and why, and learn what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import uuid4

import structlog

from headrace.core.values.text import describe_error, describe_text, hint_of, storable_id, traceback_lines, type_name
from headrace.errors import ApiError
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.triggerer.context import TriggerContext, log_as
from headrace.triggerer.cooperative_yield import CooperativeYield
from headrace.triggerer.process_pools.turn import TriggerError
from headrace.triggerer.runner.leases import Leases
from headrace.triggers.masking import mask
from headrace.wire.control.triggers import MAX_FAILED, FailureRecorded, StreamFailure, TriggerFailure

_REFUSED = 5.0  # seconds to wait before a start that the api would not speak about: its lease is about to go
_TYPE_CHARS = 200
_MOST_LOGS = 100  # logs of triggers that a failure of their stream is written to
_ROOM = 1_000  # triggers whose failures are counted before the counts of those that have left are forgotten


class FailureReporter:
    """The api's restart policy, as the runner asks for it."""

    def __init__(self, api: TriggererApi, leases: Leases) -> None:
        self._api = api
        self._leases = leases
        self._numbers: dict[int, tuple[int, int]] = {}
        self._room = _ROOM
        self._log = structlog.get_logger(__name__)

    async def __call__(self, running: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        """Return the verdict; `upstream`: it is not the trigger's own fault, and it is never parked for it."""
        trigger_id = running.trigger_id
        shown, hint = describe_error(error), hint_of(error)
        with log_as(running):  # what an upstream raised is told once, of its stream
            self._log.error("trigger failed", trigger=running.name, error=shown + hint, exc_info=None if upstream else error)
        epoch = self._leases.epoch(trigger_id)
        failure = TriggerFailure(
            epoch=epoch,
            number=self._number(trigger_id, epoch),
            upstream=upstream,
            blocked=error.blocked if isinstance(error, TriggerError) else 0.0,
            type=storable_id(type_name(error), _TYPE_CHARS),
            message=mask(describe_text(error) + hint),
            traceback=traceback_lines(error),
        )
        try:
            return await retry_until_available(lambda: self._api.failure(trigger_id, failure), "failure")
        except ApiError as trouble:  # if it is that this job is over, the heartbeat learns it too and ends the job
            self._log.warning("failure not recorded", trigger=trigger_id, error=str(trouble))
            return FailureRecorded(verdict="restart", retry_in=_REFUSED, restarts=0)

    async def stream(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        """Tell once that a stream failed with all its watches; return in how many seconds to open it again."""
        hint = hint_of(error)
        shown, stretch = describe_error(error) + hint, CooperativeYield()
        for one in watches[:_MOST_LOGS]:
            with log_as(one):
                self._log.error("trigger failed", trigger=one.name, error=shown)
            await stretch.rest()
        if len(watches) > _MOST_LOGS:
            self._log.error("more triggers failed with their stream", stream=stream, triggers=len(watches) - _MOST_LOGS, error=shown)
        kind, message = storable_id(type_name(error), _TYPE_CHARS), mask(describe_text(error) + hint)
        lines = traceback_lines(error)
        report, waits = uuid4().hex, [0.0]
        for start in range(0, len(watches), MAX_FAILED):
            epochs = self._leases.epochs(one.trigger_id for one in watches[start : start + MAX_FAILED])
            failed = StreamFailure(report=report, epochs=epochs, type=kind, message=message, traceback=lines)
            try:
                answer = await retry_until_available(partial(self._api.stream_failure, failed), "stream failure")
            except ApiError as trouble:
                self._log.warning("failure not recorded", stream=stream, error=str(trouble))
                return _REFUSED
            waits.append(answer.retry_in)
        return max(waits)

    def _number(self, trigger_id: int, epoch: int) -> int:
        last_epoch, last = self._numbers.get(trigger_id, (epoch, 0))
        number = last + 1 if last_epoch == epoch else 1
        if trigger_id not in self._numbers and len(self._numbers) >= self._room:
            # A trigger under a new epoch, or no longer held, begins to count again: its entry says nothing.
            self._numbers = {one: kept for one, kept in self._numbers.items() if self._leases.epoch(one) == kept[0]}
            self._room = max(_ROOM, 2 * len(self._numbers))
        self._numbers[trigger_id] = (epoch, number)
        return number

"""Report failures of triggers to the API, which decides when they restart."""

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
from headrace.wire.calls.execution import REPORT_FAILURE, REPORT_STREAM_FAILURE
from headrace.wire.control.triggers import MAX_FAILED, FailureRecorded, StreamFailure, TriggerFailure

_DEFAULT_WAIT_SECONDS = 5.0  # seconds until a restart if the API did not accept the report: the lease is about to end
_MAX_TYPE_CHARS = 200
_MAX_LOGS = 100  # trigger logs that receive a failure of their stream
_MAX_COUNTERS = 1_000  # failure counters before those of released triggers are dropped


class FailureReporter:
    """Requests decisions of the API's restart policy."""

    def __init__(self, api: TriggererApi, leases: Leases) -> None:
        self._api = api
        self._leases = leases
        self._numbers: dict[int, tuple[int, int]] = {}
        self._max_counters = _MAX_COUNTERS
        self._printed: tuple[BaseException | None, list[str]] = (None, [])
        self._log = structlog.get_logger(__name__)

    async def __call__(self, context: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        """Report a failure and return the decision. `upstream`: the trigger is not the cause and is never parked for it."""
        trigger_id = context.trigger_id
        text, hint = describe_error(error), hint_of(error)
        with log_as(context):  # the traceback of an upstream's error is logged once, for its stream
            self._log.error("trigger failed", trigger=context.name, error=text + hint, exc_info=None if upstream else error)
        epoch = self._leases.epoch(trigger_id)
        failure = TriggerFailure(
            epoch=epoch,
            number=self._number(trigger_id, epoch),
            upstream=upstream,
            blocked=error.blocked if isinstance(error, TriggerError) else 0.0,
            type=storable_id(type_name(error), _MAX_TYPE_CHARS),
            message=mask(describe_text(error) + hint),
            traceback=self._lines_of_stream(error) if upstream else traceback_lines(error),
        )
        try:
            return await retry_until_available(lambda: self._api.request(REPORT_FAILURE, failure, trigger_id=trigger_id), "failure")
        except ApiError as api_error:  # if the job is over, the next heartbeat fails too and ends it
            self._log.warning("failure not recorded", trigger=trigger_id, error=str(api_error))
            return FailureRecorded(decision="restart", retry_in=_DEFAULT_WAIT_SECONDS, restarts=0)

    async def stream(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        """Report once that a stream failed with all its watches; return the seconds until it may open again."""
        hint = hint_of(error)
        text, yielder = describe_error(error) + hint, CooperativeYield()
        for one in watches[:_MAX_LOGS]:
            with log_as(one):
                self._log.error("trigger failed", trigger=one.name, error=text)
            await yielder.checkpoint()
        if len(watches) > _MAX_LOGS:
            self._log.error("more triggers failed with their stream", stream=stream, triggers=len(watches) - _MAX_LOGS, error=text)
        kind, message = storable_id(type_name(error), _MAX_TYPE_CHARS), mask(describe_text(error) + hint)
        lines = traceback_lines(error)
        report, waits = uuid4().hex, [0.0]
        for start in range(0, len(watches), MAX_FAILED):
            epochs = self._leases.epochs(one.trigger_id for one in watches[start : start + MAX_FAILED])
            failed = StreamFailure(report=report, epochs=epochs, type=kind, message=message, traceback=lines)
            try:
                answer = await retry_until_available(partial(self._api.request, REPORT_STREAM_FAILURE, failed), "stream failure")
            except ApiError as api_error:
                self._log.warning("failure not recorded", stream=stream, error=str(api_error))
                return _DEFAULT_WAIT_SECONDS
            waits.append(answer.retry_in)
        return max(waits)

    def _lines_of_stream(self, error: BaseException) -> list[str]:
        """Return the traceback of an error with which a stream ended. It is printed once for all filters of the stream."""
        cause = error.__cause__ or error
        if self._printed[0] is not cause:
            self._printed = cause, traceback_lines(error)
        return self._printed[1]

    def _number(self, trigger_id: int, epoch: int) -> int:
        last_epoch, last = self._numbers.get(trigger_id, (epoch, 0))
        number = last + 1 if last_epoch == epoch else 1
        if trigger_id not in self._numbers and len(self._numbers) >= self._max_counters:
            # Under a new epoch, or without a lease, a trigger counts from 1 again, so its entry has no use.
            self._numbers = {one: entry for one, entry in self._numbers.items() if self._leases.epoch(one) == entry[0]}
            self._max_counters = max(_MAX_COUNTERS, 2 * len(self._numbers))
        self._numbers[trigger_id] = (epoch, number)
        return number

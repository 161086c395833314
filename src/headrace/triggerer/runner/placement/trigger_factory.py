"""Load triggers from their workloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from headrace.ports.triggerer_api import TriggererApi
from headrace.streams.manager import SharedStreamManager
from headrace.streams.upstream.producer_factory import StreamOpener
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.triggerer.runner.backlog_decoder import BacklogDecoder
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggerer.runner.placement.loaded_trigger import LoadedTrigger, context_of
from headrace.triggerer.user_process.loader import load_trigger, trigger_class
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.triggers import RunTrigger

log = structlog.get_logger(__name__)


class TriggerFactory:
    """Creates the triggers of one runner. `reopened` is called with the stream of a dead letter that may be open again."""

    def __init__(
        self,
        api: TriggererApi,
        outbox: Outbox,
        manager: SharedStreamManager,
        epoch: Callable[[int], int],
        decoder: BacklogDecoder,
        reopened: Callable[[str], None],
        heartbeat: SharedHeartbeat,
    ) -> None:
        self._api = api
        self._outbox = outbox
        self._manager = manager
        self._epoch = epoch
        self._decoder = decoder
        self._reopened = reopened
        self._heartbeat = heartbeat

    def load(self, workload: RunTrigger) -> LoadedTrigger:
        """Load one trigger: the watch, or the class that a trigger process instantiates, or the error."""
        if workload.parked:
            log.warning("parked trigger not started; its events go to the backlog", trigger=workload.name)
            return LoadedTrigger(workload)
        try:
            with self._heartbeat.at(workload.trigger_id):
                kind = trigger_class(workload)
                if issubclass(kind, WatchTrigger) and isinstance(trigger := load_trigger(workload), WatchTrigger):
                    return LoadedTrigger(workload, trigger.shared_stream_key(), watch=trigger)
        except Exception as error:  # a user's module may raise anything: report it, and keep its backlog
            return LoadedTrigger(workload, error=error)
        described = workload.model_dump_json().encode()
        opener = None
        if workload.stream is not None and issubclass(kind, BaseEventTrigger):
            opener = StreamOpener(kind, workload.kwargs, described)
        key = None if opener is None else workload.stream
        decode, reopened = partial(self._decoder.decode, key), partial(self._reopened, workload.stream or "")
        backlog = ApiBacklog(self._api, workload.trigger_id, self._epoch, decode, reopened)
        execution = TriggerExecution(
            context_of(workload), described, opener, self._manager, self._outbox, backlog, key=key, run_id=workload.run_id
        )
        return LoadedTrigger(workload, key, execution=execution)

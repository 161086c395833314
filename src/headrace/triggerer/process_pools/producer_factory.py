"""Create the producers of streams: built-in ones in this process, users' in processes for users' code."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from headrace.core.memory_budget import MemoryBudget
from headrace.streams.upstream.producer_factory import Making, StreamOpener, make_producer
from headrace.triggerer.builtin_upstream import is_builtin_stream
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.remote_producer import RemoteProducer
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.process_pools.turn import TurnEnd
from headrace.triggers.base import has_acks, stream_name
from headrace.triggers.upstream import SharedStreamProducer, Upstream, load_upstream
from headrace.wire.control.triggers import RunTrigger


class ProducerFactory:
    """Creates producers. If users' code decides which upstream a stream has, one of the `triggers` processes describes it.

    `opened` is called with each stream and its upstream, if that is built in.
    """

    def __init__(
        self, triggers: TriggerProcesses, hosts: ProducerProcesses, budget: MemoryBudget, opened: Callable[[str, Upstream], None]
    ) -> None:
        self._opened = opened
        self._triggers = triggers
        self._hosts = hosts
        self._budget = budget

    def make(self, key: Hashable, opener: StreamOpener) -> Making:
        """Return the producer of a stream, or a coroutine that returns it."""
        kind, kwargs, workload = opener
        if is_builtin_stream(kind, kwargs):
            return self._builtin(key, make_producer(key, opener))
        if workload and has_acks(kind):
            return self._described(key, opener)
        return self._remote(key, opener)

    async def _described(self, key: Hashable, opener: StreamOpener) -> SharedStreamProducer:
        workload = RunTrigger.model_validate_json(opener.workload)
        while True:
            description = await self._triggers.describe(workload.trigger_id, workload.name, opener.workload)
            if not isinstance(description, TurnEnd):
                break
            if description.error is not None:
                raise description.error
        if description.classpath is None:
            return self._remote(key, opener)
        arguments: dict[str, Any] = msgspec.json.decode(description.kwargs)
        return self._builtin(key, load_upstream(description.classpath, arguments).producer())

    def _builtin(self, key: Hashable, producer: SharedStreamProducer) -> SharedStreamProducer:
        if producer.upstream is not None:
            self._opened(stream_name(key), producer.upstream)
        return producer

    def _remote(self, key: Hashable, opener: StreamOpener) -> SharedStreamProducer:
        kind, kwargs, workload = opener
        classpath = f"{kind.__module__}.{kind.__qualname__}"
        if workload:
            classpath = RunTrigger.model_validate_json(workload).classpath
        return RemoteProducer(stream_name(key), classpath, msgspec.json.encode(kwargs), self._hosts, self._budget, acks=has_acks(kind))

"""Compute what each trigger of a project would have fired on a history, even if it is switched off.

Watches are matched together, through their index. A Python trigger reads the whole history as its stream, alone. An
event of the log is only given to the triggers of its own stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from headrace.errors import MissingField
from headrace.replay.raw_events import LANE, RawEvents, Replayed
from headrace.streams.watches import WatchSet
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.event import current_stream
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger

EXAMPLES: Final = 3
_SOURCE: Final = "headrace:"
"""Prefix of an event's default source; the stream follows."""
PROGRESS_INTERVAL_EVENTS: Final = 50_000
"""Events between two progress reports."""


@dataclass(frozen=True, slots=True)
class BacktestFiring:
    """One firing: the event, and its position in the order."""

    id: str
    position: int
    occurred: datetime | None


@dataclass(slots=True)
class TriggerReport:
    """The results of one trigger.

    `missing`: matching events that lack a declared field. `note`: what the first of them lacks, or why the trigger
    stopped early.
    """

    trigger: str
    fired: int = 0
    first: BacktestFiring | None = None
    last: BacktestFiring | None = None
    examples: list[BacktestFiring] = field(default_factory=list)
    rejected: int = 0
    missing: int = 0
    note: str | None = None

    def fire(self, event: Replayed) -> None:
        """Count one firing."""
        fired = BacktestFiring(event.id, event.position, event.occurred)
        self.fired += 1
        self.first = self.first or fired
        self.last = fired
        if len(self.examples) < EXAMPLES:
            self.examples.append(fired)

    def on_wire(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def backtest(triggers: Mapping[str, BaseEventTrigger], events: RawEvents, on_progress: Callable[[str, int], None]) -> list[TriggerReport]:
    """Match every trigger with every event of its stream, in order. `on_progress` receives the pass and the number of events read."""
    streams = Streams(triggers)
    watches = {name: trigger for name, trigger in triggers.items() if isinstance(trigger, WatchTrigger)}
    reports = {name: TriggerReport(name) for name in triggers}
    if watches:
        _match_watches(watches, reports, streams, _with_progress(events, "watches", on_progress))
    for name, trigger in triggers.items():
        if name in watches:
            continue
        if trigger.shared_stream_key() is None:
            reports[name].note = "It polls alone, so a history cannot be given to it."
            continue
        mine = (event for event in _with_progress(events, name, on_progress) if streams.may_see(name, event))
        asyncio.run(_run_filter(trigger, reports[name], mine))
    return list(reports.values())


class Streams:
    """The streams of a project's triggers, to select the triggers of an event of the log."""

    def __init__(self, triggers: Mapping[str, BaseEventTrigger]) -> None:
        keys = {name: trigger.shared_stream_key() for name, trigger in triggers.items()}
        self._stream_of = {name: stream_name(key) for name, key in keys.items() if key is not None}
        self._known = set(self._stream_of.values())

    def may_see(self, trigger: str, event: Replayed) -> bool:
        """Return whether the event came from the trigger's stream, or from an unknown one. Only the log has the streams of events."""
        came_from = self._of(event)
        return not came_from or self._stream_of.get(trigger) in came_from

    def _of(self, event: Replayed) -> set[str]:
        fired = {self._stream_of[name] for name in event.triggers if name in self._stream_of}
        source = (event.source or "").removeprefix(_SOURCE)
        return fired | {source} if source in self._known else fired


def _with_progress(events: Iterable[Replayed], name: str, on_progress: Callable[[str, int], None]) -> Iterable[Replayed]:
    count = 0
    for count, event in enumerate(events, 1):
        yield event
        if count % PROGRESS_INTERVAL_EVENTS == 0:
            on_progress(name, count)
    on_progress(name, count)


def _match_watches(
    watches: Mapping[str, WatchTrigger], reports: Mapping[str, TriggerReport], streams: Streams, events: Iterable[Replayed]
) -> None:
    names = list(watches)
    watch_set = WatchSet(dict(enumerate(watches.values())))
    for event in events:
        match = watch_set.match(event.raw, LANE, event.position)
        for envelope, asking in match.groups:
            numbers = [number for number in asking if streams.may_see(names[number], event)]
            if not numbers:
                continue
            if event.source is not None and isinstance(envelope.source, str) and envelope.source != event.source:
                continue
            try:
                envelope.extract(match.value, stream=LANE, lane=LANE, position=event.position)
            except MissingField as error:
                for number in numbers:
                    report = reports[names[number]]
                    report.missing += 1
                    report.note = report.note or f"Event {event.id}: {error}"
            else:
                for number in numbers:
                    reports[names[number]].fire(event)


class _Stream:
    """A history as the stream of one filter."""

    def __init__(self, events: Iterable[Replayed], report: TriggerReport) -> None:
        self._events = events
        self._report = report
        self.at: Replayed | None = None

    def reject(self, reason: str | None) -> bool:
        """Count the filter's current event as rejected."""
        del reason
        self._report.rejected += 1
        return True

    async def read(self) -> AsyncIterator[RawEvent]:
        """Yield the raw events."""
        for event in self._events:
            self.at = event
            yield event.raw


async def _run_filter(trigger: BaseEventTrigger, report: TriggerReport, events: Iterable[Replayed]) -> None:
    stream = _Stream(events, report)
    token = current_stream.set(stream)
    try:
        async for _ in trigger.filter_shared_stream(stream.read()):
            if stream.at is not None:
                report.fire(stream.at)
    except Exception as error:
        where = "" if stream.at is None else f" at event {stream.at.id} (position {stream.at.position})"
        report.note = f"It failed{where}: {type(error).__name__}: {error}"
    finally:
        current_stream.reset(token)
        await trigger.cleanup()

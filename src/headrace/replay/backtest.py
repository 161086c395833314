"""Compute what each trigger of a project would have fired on a history, even if it is switched off.

Watches are matched together: by Spark where it can, else through their index. A Python trigger reads the whole history as its stream,
alone. An event of the log is only given to the triggers of its own stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from headrace.errors import MissingField
from headrace.replay.raw_events import LANE, Identified, Positions, RawEvents, Replayed
from headrace.replay.watch_matches import Firings, SparkMatcher, WatchMatches
from headrace.streams.watches import WatchSet
from headrace.triggers.base import BaseEventTrigger, stream_name
from headrace.triggers.event import current_stream
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger

EXAMPLES: Final = 3
_SOURCE: Final = "headrace:"
"""Prefix of an event's default source; the stream follows."""
WATCHES: Final = "watches"
"""Name of the pass of all watches, for progress."""
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

    def add(self, count: int, firings: Iterable[BacktestFiring]) -> None:
        """Add other firings: their number, and the first `EXAMPLES` and the last of them."""
        known = {firing.position: firing for firing in (*self.examples, *firings, *([self.last] if self.last else []))}
        in_order = [known[position] for position in sorted(known)]
        self.fired += count
        self.first, self.last, self.examples = in_order[0], in_order[-1], in_order[:EXAMPLES]

    def on_wire(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def backtest(
    triggers: Mapping[str, BaseEventTrigger], events: RawEvents, on_progress: Callable[[str, int], None], spark: SparkMatcher | None = None
) -> list[TriggerReport]:
    """Match every trigger with every event of its stream, in order. `on_progress` receives the pass and the last position read.

    With `spark`, watches are matched there, and only events that it cannot decide are read here.
    """
    streams = Streams(triggers)
    watches = {name: trigger for name, trigger in triggers.items() if isinstance(trigger, WatchTrigger)}
    reports = {name: TriggerReport(name) for name in triggers}
    if watches:
        _backtest_watches(watches, reports, streams, events, on_progress, spark)
    for name, trigger in triggers.items():
        if name in watches:
            continue
        if trigger.shared_stream_key() is None:
            reports[name].note = "It polls alone, so a history cannot be given to it."
            continue
        mine = (event for event in _with_progress(events, name, on_progress) if streams.may_see(name, event))
        asyncio.run(_run_filter(trigger, reports[name], mine))
    return list(reports.values())


def _backtest_watches(
    watches: Mapping[str, WatchTrigger],
    reports: Mapping[str, TriggerReport],
    streams: Streams,
    events: RawEvents,
    on_progress: Callable[[str, int], None],
    spark: SparkMatcher | None,
) -> None:
    groups = [] if spark is None else spark.groups(watches, events)
    if spark is None or not groups:
        _match_watches(watches, reports, streams, _with_progress(events, WATCHES, on_progress))
        return
    for group in groups:
        matches = spark.match(group, events, EXAMPLES)
        undecided = _with_progress(events.at(matches.undecided), WATCHES, on_progress)
        first_missing = _match_watches(group, reports, streams, undecided)
        _add_firings(matches, reports, events)
        for name in matches.lacking:
            if matches.firings[name].count:
                _add_missing(group[name], matches.firings[name], reports[name], streams, events, first_missing.get(name))


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
    count = position = 0
    for count, event in enumerate(events, 1):
        yield event
        position = event.position
        if count % PROGRESS_INTERVAL_EVENTS == 0:
            on_progress(name, position)
    on_progress(name, position)


def _add_firings(matches: WatchMatches, reports: Mapping[str, TriggerReport], events: RawEvents) -> None:
    """Add the firings that Spark counted."""
    counted = {name: firings for name, firings in matches.firings.items() if firings.count and name not in matches.lacking}
    known = events.identified(position for firings in counted.values() for position in (*firings.first, firings.last))
    for name, firings in counted.items():
        reports[name].add(firings.count, [_firing(known[position]) for position in (*firings.first, firings.last)])


def _add_missing(
    watch: WatchTrigger, matched: Firings, report: TriggerReport, streams: Streams, events: RawEvents, first_missing: int | None
) -> None:
    """Add the matches, counted by Spark, of a watch whose fields no event has. `first_missing`: the first event that the driver counted."""
    report.missing += matched.count
    first = matched.first[0]
    if first_missing is None or first < first_missing:
        alone = TriggerReport(report.trigger)
        _match_watches({report.trigger: watch}, {report.trigger: alone}, streams, events.at(Positions.of([first])))
        report.note = alone.note


def _firing(event: Identified) -> BacktestFiring:
    return BacktestFiring(event.id, event.position, event.occurred)


def _match_watches(
    watches: Mapping[str, WatchTrigger], reports: Mapping[str, TriggerReport], streams: Streams, events: Iterable[Replayed]
) -> dict[str, int]:
    """Match the watches through their index. Return the position of the first event that lacks a field, for each watch that has one."""
    names = list(watches)
    first_missing: dict[str, int] = {}
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
                    first_missing.setdefault(report.trigger, event.position)
            else:
                for number in numbers:
                    reports[names[number]].fire(event)
    return first_missing


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

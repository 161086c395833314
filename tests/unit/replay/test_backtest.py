"""A backtest sends each trigger the events of its own stream if the history has streams, as the log does (first-use 9)."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from headrace import SKIP, BaseEventTrigger, Memory, TriggerEvent
from headrace.replay.backtest import TriggerReport, backtest
from headrace.replay.raw_events import LANE, RawEvents, Replayed
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger

COMMITS, NUMBERS = Memory("commits"), Memory("numbers")


class Even(BaseEventTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Even", {}

    def shared_stream_key(self) -> str:
        return NUMBERS.stream_key()

    async def handle(self, raw: RawEvent) -> Any:
        return TriggerEvent(raw.value) if raw.value["n"] % 2 == 0 else SKIP


TRIGGERS: dict[str, BaseEventTrigger] = {
    "commit.all": WatchTrigger(upstream=COMMITS, id="$.id"),
    "number.all": WatchTrigger(upstream=NUMBERS, id="$.id", source="$.by"),
    "number.even": Even(),
}


def replayed(position: int, payload: dict[str, Any], source: str | None, *triggers: str) -> Replayed:
    return Replayed(position, payload["id"], None, source, RawEvent(msgspec.json.encode(payload), LANE, position), triggers)


def reports_by_trigger(*events: Replayed) -> dict[str, TriggerReport]:
    return {report.trigger: report for report in backtest(TRIGGERS, cast(RawEvents, events), lambda *_: None)}


def test_a_trigger_receives_only_events_of_its_own_stream() -> None:
    reports = reports_by_trigger(
        replayed(1, {"id": "c1"}, COMMITS.source, "commit.all"),
        replayed(2, {"id": "n1", "n": 4, "by": "ada"}, "ada", "number.all"),  # a source of its own: known by what fired
        replayed(3, {"id": "n2", "n": 6, "by": "bob"}, NUMBERS.source, "removed.trigger"),
    )
    assert {name: report.fired for name, report in reports.items()} == {"commit.all": 1, "number.all": 2, "number.even": 2}
    assert [report.note for report in reports.values() if report.note] == []


def test_a_history_without_streams_goes_to_all_triggers() -> None:
    reports = reports_by_trigger(replayed(1, {"id": "n1", "n": 4, "by": "ada"}, None), replayed(2, {"id": "n2", "n": 5, "by": "ada"}, None))
    assert {name: report.fired for name, report in reports.items()} == {"commit.all": 2, "number.all": 2, "number.even": 1}

"""Any raw event, trigger event or exception is stored or reported on its own, and the sink raises no error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from headrace.client.triggerer import TriggererClient
from headrace.core.matching.envelope import Envelope
from headrace.core.matching.paths import JsonPath
from headrace.core.values.text import MAX_ID_BYTES, is_id, is_storable, storable_id
from headrace.errors import ApiRefused
from headrace.streams.sink import Malformed, Matched, RejectedEvent, Spilled
from headrace.triggerer.context import EventOrigin, TriggerContext
from headrace.triggerer.outbox.dead_letters import replacement_for, shortened
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.sink import OutboxSink, extract_event
from headrace.triggerer.process_pools.turn import TurnEnd
from headrace.triggerer.runner.failure_reporter import FailureReporter
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.supervisor.api_proxy import _may
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.raw_event import RawEvent
from headrace.wire.control.triggers import FailureRecorded, TriggerFailure
from headrace.wire.custody.events import DeadLetterItem, EventBatch, EventItem
from support.processes.api_twin import ApiTwin
from support.processes.trigger_process import run_alone


def sealer(outbox: Outbox) -> OutboxSink:
    return OutboxSink(outbox, lambda seq: None, lambda *_: None, lambda *_: None)


def letters(outbox: Outbox) -> list[DeadLetterItem]:
    return [pending.item for pending in outbox if isinstance(pending.item, DeadLetterItem)]


def matched(text: str, envelope: Envelope, *triggers: int, position: int | None = 3, message_id: str | None = None) -> Matched:
    raw = RawEvent(text.encode(), "lane", position or 0)
    return Matched(1, "stream", "lane", position, raw, raw.value, envelope, triggers or (7,), message_id)


BY_ID = Envelope(source="s", type="t", id=JsonPath.parse("$.id"))
ODD_IDS = ['"a\\u0000b"', "1" * 4_299, "9" * 4_000, '"' + "x" * 5_000 + '"', '""', "[]", "true", "1.5e308", '"\\u4e2d"', "null"]


@pytest.mark.parametrize("id", ODD_IDS)
def test_a_raw_event_with_an_unusual_id_becomes_an_event_or_a_dead_letter(id: str) -> None:
    outbox = Outbox()
    sealer(outbox).matched(matched(f'{{"id": {id}}}', BY_ID))
    (pending,) = outbox
    EventBatch.model_validate(json.loads(EventBatch(epochs={}, events=[], dead_letters=[]).model_dump_json()))
    assert isinstance(pending.item, EventItem | DeadLetterItem)
    if isinstance(pending.item, EventItem):
        assert is_storable(pending.item.id)


def test_a_number_with_too_many_digits_is_a_wrong_field() -> None:
    answer = extract_event(BY_ID, {"id": 10**5_000}, b"{}", [7], EventOrigin("stream", "lane", 3), message_id=None)
    assert answer == ("wrong_field", "The event's $.id is not a number of at most 4,300 digits.")


def test_a_field_of_a_wrong_type_is_a_wrong_field() -> None:
    outbox = Outbox()
    sealer(outbox).matched(matched('{"id": []}', BY_ID))
    sealer(outbox).matched(matched("{}", BY_ID))
    assert [letter.kind for letter in letters(outbox)] == ["wrong_field", "missing_field"]


def test_half_a_surrogate_pair_is_named() -> None:
    with pytest.raises(Exception, match=r"\\ud800 is half of a surrogate pair"):
        _ = RawEvent(b'{"id": "\\ud800"}', "lane", 0).value
    with pytest.raises(Exception, match="truncated"):
        _ = RawEvent(b'{"id": "\\ud83d\\ude00', "lane", 0).value


def test_equal_raw_events_without_positions_have_separate_dead_letters() -> None:
    outbox = Outbox()
    raw = RawEvent(b"{", "lane", 0)
    for number in range(5):
        sealer(outbox).malformed(Malformed(number, "stream", "lane", None, raw, "Not JSON.", (7,), f"opening-{number}"))
        sealer(outbox).rejected(RejectedEvent(number, "stream", "lane", None, "{}", 7, "no", f"opening-{number}"))
    assert len({letter.id for letter in letters(outbox)}) == 10
    again = Outbox()
    sealer(again).malformed(Malformed(9, "stream", "lane", None, raw, "Not JSON.", (7,), "opening-3"))
    assert letters(again)[0].id in {letter.id for letter in letters(outbox)}


def test_watches_with_different_envelopes_have_separate_dead_letters() -> None:
    outbox = Outbox()
    sealer(outbox).matched(matched("{}", BY_ID, 1, 2))
    sealer(outbox).matched(matched("{}", Envelope(source="s", type="t", id=JsonPath.parse("$.other")), 3))
    assert [letter.triggers for letter in letters(outbox)] == [[1, 2], [3]]
    assert len({letter.id for letter in letters(outbox)}) == 2


@pytest.mark.parametrize(("assigned", "dead_letters"), [(False, 2), (True, 1)])
def test_the_id_of_a_message_identifies_dead_letters_only_where_positions_are_assigned(assigned: bool, dead_letters: int) -> None:
    outbox = Outbox()
    for position in (1, 2):
        sealer(outbox).matched(matched("{}", BY_ID, position=position, message_id="m1")._replace(assigned=assigned))
    assert len({letter.id for letter in letters(outbox)}) == dead_letters


def test_a_refused_item_has_one_dead_letter_per_envelope_and_spill() -> None:
    outbox = Outbox()
    sealer(outbox).matched(matched('{"id": "x"}', BY_ID, 1, 2))
    sealer(outbox).matched(matched('{"id": "x"}', Envelope(source="other", type="t", id=JsonPath.parse("$.id")), 3))
    sealer(outbox).spilled(Spilled(3, "stream", "lane", 3, "{}", (4,)))
    sealer(outbox).spilled(Spilled(4, "stream", "lane", 3, "{}", (5,)))
    refused = [letter for pending in outbox if (letter := replacement_for(pending, "too large")) is not None]
    assert [letter.triggers for letter in refused] == [[1, 2], [3], [4], [5]]
    assert len({letter.id for letter in refused}) == 4
    assert {letter.kind for letter in refused} == {"failed"}


async def test_a_refused_event_of_a_trigger_has_a_dead_letter_that_is_not_redriven() -> None:
    """A redrive would give the trigger its own output."""
    outbox = Outbox()
    await run_alone(Own(TriggerEvent({"a": 1})), outbox)
    (pending,) = outbox
    letter = replacement_for(pending, "too large")
    assert letter is not None
    assert letter.kind == "unserialisable"


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", "x" * 1_001, "\u4e2d" * 1_000, "\U0001f600" * 999, "a\udcff" * 400])
def test_every_text_has_a_distinct_storable_id(text: str) -> None:
    assert is_id(storable_id(text))
    assert is_id(storable_id(text, 200, 300), 200, 300)
    assert storable_id(text) != storable_id(text + "1")
    assert storable_id(storable_id(text)) == storable_id(text)
    assert len(storable_id(text).encode()) <= MAX_ID_BYTES


def test_a_short_dead_letter_has_no_shorter_form() -> None:
    given: dict[str, Any] = {
        "id": "a\0" * 900,
        "kind": "failed",
        "reason": "r\ud800" * 9_000,
        "stream": "\u4e2d" * 5_000,
        "lane": "\udcff",
        "raw": "\0" * 10**6,
    }
    letter = shortened(DeadLetterItem.model_construct(**given, position=2**70, triggers=[7], attempts=2**70, traceback=["\ud800"]))
    assert shortened(letter) == letter
    assert len(letter.model_dump_json()) < 20_000


@dataclass
class Measured:
    value: Any


class Moment:
    """Has `isoformat` as a datetime has."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def isoformat(self) -> Any:
        return self._answer


class Own(BaseTrigger):
    """Yields what it was made with."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.event = event

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Own", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield self.event


class Unprintable:
    def __repr__(self) -> str:
        raise SystemExit(3)


def deep(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def circular() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


ODD_EVENTS = {
    "surrogate in the subject": TriggerEvent({}, subject="a\ud800"),
    "surrogate in the payload": TriggerEvent({"a": "\udcff"}),
    "surrogate in a key": TriggerEvent({"a\udcff": 1}),
    "NUL in the id": TriggerEvent({}, id="a\0"),
    "long id": TriggerEvent({}, id="x" * 2_000),
    "id that is no text": TriggerEvent({}, id=5),  # type: ignore[arg-type]
    "NaN": TriggerEvent({"a": [float("nan")]}),
    "NaN in a dataclass": TriggerEvent({"a": [Measured(float("nan"))]}),
    "NaN in a dataclass alone": TriggerEvent(Measured(float("nan"))),
    "NaN beside JSON": TriggerEvent({"a": float("nan"), "b": msgspec.Raw(b"1")}),
    "JSON that is not UTF-8": TriggerEvent({"a": msgspec.Raw(b'"\xff"')}),
    "Infinity beside null": TriggerEvent({"a": None, "b": float("-inf")}),
    "deep": TriggerEvent(deep(201)),
    "too deep for Python": TriggerEvent(deep(100_000)),
    "circular": TriggerEvent(circular()),
    "object": TriggerEvent({"a": object()}),
    "unprintable": TriggerEvent({"a": Unprintable()}),
    "moment without an offset": TriggerEvent({}, occurred=datetime(2026, 1, 1)),
    "moment after the year 9999": TriggerEvent({}, occurred=datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-5)))),
    "moment before the year 1": TriggerEvent({}, occurred=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
    "moment that is no moment": TriggerEvent({}, occurred="soon"),  # type: ignore[arg-type]
    **{f"moment of {type(odd).__name__}": TriggerEvent({}, occurred=Moment(odd)) for odd in (b"\xff", 5, object())},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ODD_EVENTS)
async def test_an_unserializable_trigger_event_becomes_its_own_dead_letter(name: str) -> None:
    outbox = Outbox()
    assert await run_alone(Own(ODD_EVENTS[name]), outbox) == TurnEnd()
    (letter,) = letters(outbox)
    assert letter.kind == "unserialisable"
    EventBatch(epochs={}, dead_letters=[letter]).model_dump_json().encode()


async def test_a_usual_trigger_event_becomes_an_event() -> None:
    outbox = Outbox()
    await run_alone(Own(TriggerEvent({"a": None, "b": deep(190)}, occurred=datetime(2026, 1, 1, tzinfo=UTC))), outbox)
    assert not letters(outbox)
    assert len(outbox) == 1


async def test_a_value_other_than_a_trigger_event_fails_the_trigger() -> None:
    end = await run_alone(Own({"a": 1}), Outbox())
    assert type(end.error).__name__ == "TypeError"
    assert "yielded a dict" in str(end.error)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not printable")


class Api(ApiTwin):
    def __init__(self) -> None:
        self.failures: list[TriggerFailure] = []

    async def failure(self, failure: TriggerFailure, trigger_id: int) -> FailureRecorded:
        self.failures.append(failure)
        return FailureRecorded(decision="restart", retry_in=0, restarts=1)


ODD_ERRORS = [
    ValueError("a\udcff"),
    ValueError("a\0"),
    Mute(),
    ValueError("x" * 20_000_000),
    type("N" * 300, (Exception,), {})("odd name"),
    ExceptionGroup("many", [ValueError("\ud800"), Mute()]),
    SystemExit(Unprintable()),
]


@pytest.mark.parametrize("number", range(len(ODD_ERRORS)))
async def test_every_exception_can_be_reported(number: int) -> None:
    api = Api()
    await FailureReporter(api, Leases())(TriggerContext(7, "odd", "log"), ODD_ERRORS[number])  # type: ignore[arg-type]
    (failure,) = api.failures
    assert len(failure.model_dump_json().encode()) < 300_000
    assert all(is_storable(text) for text in (failure.type, failure.message, *failure.traceback))


async def test_failure_counters_of_released_triggers_are_dropped() -> None:
    api, leases = Api(), Leases()
    failures = FailureReporter(api, leases)  # type: ignore[arg-type]
    for number in range(1_500):  # deferred runs: each is a trigger that fails once and leaves
        leases.update({number: 1, 9_999: 1}, released=[number - 1])
        leases.drop_released(())
        await failures(TriggerContext(number, "odd", "log"), ValueError("no"))
    await failures(TriggerContext(9_999, "odd", "log"), ValueError("no"))
    await failures(TriggerContext(9_999, "odd", "log"), ValueError("no"))
    assert [failure.number for failure in api.failures[-2:]] == [1, 2]
    assert len(failures._numbers) <= 1_001


MAY = [
    "/execution/triggers/events",
    "/execution/streams/offsets?a=a/../b",
    "/execution/connections/a%20b",
    "/execution/variables/a..b",
]
MAY_NOT = [
    "/execution/jobs/1/complete",
    "/execution/./jobs/1/complete",
    "/execution/triggers/../jobs/1/complete",
    "/execution/%2e/jobs/1/complete",
    "/execution/%6Aobs/1/complete",
    "/execution/\tjobs/1/complete",
    "/execu\ntion/jobs/1/complete",
    "/execution//jobs/1/complete",
    "/execution\\jobs",
    "/execution%2Fjobs/1",
    "//execution/triggers",
    " /execution/triggers",
    "/execution",
    "/api/v1/status",
    "execution/triggers",
]


@pytest.mark.parametrize("path", [*MAY, *MAY_NOT])
def test_a_runner_cannot_call_job_paths_in_any_spelling(path: str) -> None:
    assert _may(path) is (path in MAY)


async def test_a_too_large_request_is_refused_before_it_is_sent() -> None:
    client = TriggererClient("http://127.0.0.1:1", key="k")
    try:
        event = EventItem(id="a", source="s", type="t", subject="\ud800", payload="{}", firings=[1])
        with pytest.raises(ApiRefused, match="cannot be written"):
            await client.store(EventBatch(epochs={}, events=[event]))
        large = replace(event, subject=None, payload="x" * (17 * 1024 * 1024))
        with pytest.raises(ApiRefused, match="bytes"):
            await client.store(EventBatch(epochs={}, events=[large]))
    finally:
        await client.aclose()
    await asyncio.sleep(0)

"""Why a trigger fired or did not: each case of the decision, and the order in which they count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from headrace.core.matching.firing_explanation import (
    BacklogEntry,
    DeadLetterFacts,
    ExplainedAnswers,
    ExplainedEvent,
    ExplainedTrigger,
    FiringAnswer,
    OtherFiring,
    check_pattern,
    explain_firing,
)
from headrace.core.matching.patterns.explanation import explain
from headrace.core.matching.patterns.parser import parse_pattern
from support.patterns.strategies import EVENTS, PATTERNS

MINUTE = 60_000_000
NOON = 1_800_000_000_000_000
EVENT = ExplainedEvent(
    seq=12,
    stream="kafka:orders",
    lane="0",
    position=7,
    received=NOON,
    payload='{"status": "open", "total": 5, "order": {"id": 17}}',
    is_message=True,
)
WATCH = ExplainedTrigger(
    name="orders.paid",
    stream="kafka:orders",
    state="running",
    is_watch=True,
    arguments={"match": {"status": ["paid"]}},
    registered=NOON - 60 * MINUTE,
    declared=NOON - 60 * MINUTE,
)
ANSWERED = ExplainedAnswers(recorded=7)


def of_watch(answers: ExplainedAnswers = ANSWERED, event: ExplainedEvent = EVENT, **changes: Any) -> FiringAnswer:
    return explain_firing(event, replace(WATCH, **changes), answers)


def of_match(match: Any, payload: str = EVENT.payload, **arguments: Any) -> FiringAnswer:
    return of_watch(event=replace(EVENT, payload=payload), arguments={"match": match, **arguments})


def test_a_firing_is_reported_with_its_event_and_time() -> None:
    answer = of_watch(ExplainedAnswers(fired=True), state="parked")
    assert answer == FiringAnswer("fired", "orders.paid fired on event 12, which the log stored at 2027-01-15T08:00:00.000Z.")


def test_a_firing_counts_also_if_the_trigger_reads_another_stream_now() -> None:
    assert of_watch(ExplainedAnswers(fired=True), stream="kafka:others", declared=NOON + MINUTE).reason == "fired"


def test_a_firing_of_the_raw_event_as_another_event_names_that_event() -> None:
    answer = of_watch(replace(ANSWERED, other=OtherFiring(13, "b-17")))
    assert (answer.reason, answer.text) == (
        "fired_as_another_event",
        "orders.paid fired on the same raw event, as event 13 with the id b-17.",
    )


@pytest.mark.parametrize(
    ("of_trigger", "of_event", "text"),
    [
        ("a", "b", "orders.paid reads a; the event came from another stream, b."),
        ("a#0-of-2", "a#1-of-2", "orders.paid reads a#0-of-2; the event came from another part of the stream, the shard a#1-of-2."),
        (None, "b", "orders.paid polls alone and reads no shared stream; the event came from another stream, b."),
        ("a", None, "orders.paid reads a; the event came from a trigger that polls alone, not from a shared stream."),
    ],
)
def test_an_event_of_another_stream_is_reported_with_both_streams(of_trigger: str | None, of_event: str | None, text: str) -> None:
    answer = of_watch(event=replace(EVENT, stream=of_event), stream=of_trigger)
    assert answer == FiringAnswer("other_stream", text)


def test_a_trigger_that_changed_its_stream_later_may_have_read_it() -> None:
    assert of_watch(stream="kafka:others", declared=NOON + MINUTE).notes == (
        "orders.paid may have read that stream before 2027-01-15T08:01:00.000Z.",
    )


def test_a_raw_event_in_the_backlog_waits_there_whatever_the_pattern_says() -> None:
    answer = of_watch(replace(ANSWERED, backlog=BacklogEntry(NOON, None)), state="parked")
    assert answer == FiringAnswer(
        "in_backlog",
        "The raw event waits in the backlog of orders.paid, since 2027-01-15T08:00:00.000Z.",
        ("orders.paid is parked. To restart it: headrace triggers resume orders.paid",),
    )


def test_a_dead_letter_is_reported_with_its_kind_and_reason() -> None:
    answer = of_watch(replace(ANSWERED, dead_letter=DeadLetterFacts("0a1b2c", "missing_field", "no $.id", "open")))
    assert answer == FiringAnswer(
        "dead_letter",
        "The raw event is a dead letter of orders.paid (missing field, open): no $.id.",
        ("To see it: headrace dead-letters show 0a1b2c",),
    )


def test_a_redriven_dead_letter_waits_in_the_backlog() -> None:
    answer = of_watch(replace(ANSWERED, dead_letter=DeadLetterFacts("0a", "failed", "it broke!", "redriven")))
    assert answer.reason == "dead_letter"
    assert answer.text == "The raw event waits in the backlog of orders.paid, since its dead letter is redriven. Before: it broke!"


@pytest.mark.parametrize(
    ("answer", "text"),
    [("filtered", "did not fire on it"), ("dropped", "an operator dropped it"), ("rejected", "its answer is rejected")],
)
def test_an_answer_from_the_backlog_is_reported(answer: str, text: str) -> None:
    facts = replace(ANSWERED, backlog=BacklogEntry(None, answer))
    assert of_watch(facts, is_watch=False).text == f"The raw event was in the backlog of orders.paid, which is settled: {text}."


def test_a_watch_that_filtered_from_its_backlog_is_explained_by_its_pattern() -> None:
    assert of_watch(replace(ANSWERED, backlog=BacklogEntry(None, "filtered"))).reason == "pattern"


def test_a_trigger_registered_later_did_not_fire() -> None:
    answer = of_watch(registered=NOON + MINUTE, declared=NOON + MINUTE)
    assert answer.reason == "not_registered"
    assert answer.text == (
        "orders.paid was registered at 2027-01-15T08:01:00.000Z, after the log stored the event at 2027-01-15T08:00:00.000Z."
    )


def test_a_trigger_removed_earlier_did_not_fire() -> None:
    answer = of_watch(state="removed", removed=NOON - MINUTE)
    assert (answer.reason, answer.notes) == ("removed", ())
    assert answer.text.startswith("orders.paid was removed from its project at 2027-01-15T07:59:00.000Z, before the log stored")


def test_a_trigger_removed_later_is_explained_and_marked() -> None:
    answer = of_watch(state="removed", removed=NOON + MINUTE)
    assert answer.reason == "pattern"
    assert answer.notes == ("orders.paid is not declared any more, since 2027-01-15T08:01:00.000Z.",)


def test_the_first_failing_field_and_its_value_are_named_as_headrace_match_does() -> None:
    answer = of_match({"total": [5], "status": ["paid", "sent"]})
    assert answer == FiringAnswer(
        "pattern", 'The pattern of orders.paid does not match: status is "open"; the pattern needs one of ["paid","sent"].'
    )


def test_the_nearest_alternative_is_named_and_the_others_are_counted() -> None:
    answer = of_match({"total": [5], "$or": [{"status": ["paid"]}, {"order": {"id": [18]}}]})
    assert answer.text == 'The pattern of orders.paid does not match: status is "open"; the pattern needs "paid".'
    assert answer.notes == ("1 other alternative of the pattern fails too.",)


def test_a_secret_in_the_pattern_hides_the_values() -> None:
    answer = of_watch(has_secret=True)
    assert answer.text == (
        "The pattern of orders.paid does not match: status fails; its value is hidden, because the pattern has a stored secret."
    )
    assert "paid" not in answer.text.replace("orders.paid", "")


def test_a_pattern_that_changed_since_is_marked() -> None:
    answer = of_watch(declared=NOON + MINUTE)
    assert answer.reason == "pattern"
    assert "changed at 2027-01-15T08:01:00.000Z" in answer.notes[0]


def test_a_pattern_that_matches_now_and_changed_since_is_not_the_reason() -> None:
    answer = of_watch(arguments={}, declared=NOON + MINUTE)
    assert answer.reason == "declaration_changed"
    assert answer.text == (
        "The pattern of orders.paid matches now, but its declaration changed at 2027-01-15T08:01:00.000Z, after the log stored the event."
    )


@pytest.mark.parametrize(
    ("paths", "text"),
    [({"id": "$.none"}, "The event has no $.none, which the watch declares."), ({"id": "$.order"}, "The event's $.order is not a text")],
)
def test_a_declared_field_that_is_missing_or_wrong_is_named(paths: dict[str, str], text: str) -> None:
    answer = of_match({"status": ["open"]}, **paths)
    assert answer.reason == "field"
    assert text in answer.text


def test_fields_of_the_metadata_cannot_be_checked() -> None:
    answer = of_match({"@": {"key": ["UA"]}, "status": ["open"]}, id="@.headers.id")
    assert answer.reason == "pattern"
    assert "probably one of its fields in the metadata" in answer.text
    assert answer.notes == ("Not checked, because the log does not have the metadata of messages: @.key.",)
    assert of_match({"@": {"key": ["UA"]}, "status": ["paid"]}).text.endswith('status is "open"; the pattern needs "paid".')
    both = {"$or": [{"@": {"key": ["UA"]}}, {"status": ["open"]}]}
    assert of_match(both).reason == "unknown"


def test_a_raw_event_that_no_receipt_covers_may_not_be_answered_yet() -> None:
    for recorded, end in ((None, "there are none yet"), (6, "they end at position 6")):
        answer = explain_firing(EVENT, replace(WATCH, arguments={}), ExplainedAnswers(recorded=recorded))
        assert answer.reason == "not_answered"
        assert end in answer.text


def test_a_match_without_a_stored_answer_is_unknown_and_names_what_may_explain_it() -> None:
    answer = of_watch(arguments={}, conflicts=3, registered=NOON - 1_000_000, declared=NOON - 1_000_000)
    assert answer.reason == "unknown"
    assert "dropped 3 events with a known id" in answer.notes[0]
    assert "it may have been read before" in answer.notes[1]


def test_a_declaration_that_cannot_be_read_is_unknown() -> None:
    assert of_watch(arguments=None, unreadable="No key opens it.").text.endswith("is not checked: No key opens it.")
    assert of_match({"status": [{"prefixx": "a"}]}).reason == "unknown"


def test_a_payload_that_a_trigger_in_python_wrote_is_not_checked() -> None:
    answer = of_watch(event=replace(EVENT, is_message=False))
    assert answer.reason == "unknown"
    assert "a trigger in Python wrote it" in answer.text


def test_an_empty_message_is_an_empty_object() -> None:
    assert of_match({"status": [{"exists": False}]}, "null").reason == "unknown"
    assert of_match({"status": ["paid"]}, "null").text.endswith('status is absent; the pattern needs "paid".')
    assert of_match({"status": ["paid"]}, "[]").text == "The payload of event 12 is not a JSON object, so no pattern matches it."


def test_a_trigger_in_python_is_explained_by_its_counts() -> None:
    answer = of_watch(replace(ANSWERED, totals={"fired": 1_200, "settled_rejected": 3}), is_watch=False)
    assert answer.reason == "python"
    assert answer.notes[0] == "Its answers to all raw events of the stream, other than to skip them: fired 1,200, settled rejected 3."
    assert of_watch(ANSWERED, is_watch=False, declared=NOON + MINUTE).reason == "declaration_changed"
    assert of_watch(ExplainedAnswers(), is_watch=False).reason == "not_answered"


@given(PATTERNS, EVENTS)
def test_the_check_of_a_pattern_agrees_with_its_explanation(pattern: Any, value: Any) -> None:
    parsed = parse_pattern(pattern)
    result = check_pattern(parsed, value)
    mismatches = explain(parsed, value)
    assert (result.mismatch is None) == (not mismatches)
    if result.mismatch is not None:
        assert result.mismatch == mismatches[0]
        assert result.others == len(mismatches) - 1

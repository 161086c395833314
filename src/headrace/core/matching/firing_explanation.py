"""Why a trigger fired on an event of the log or did not: the decision from the log, the declaration and custody. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from headrace.core.matching.envelope import Envelope
from headrace.core.matching.paths import METADATA, JsonPath
from headrace.core.matching.patterns.explanation import Mismatch, explain
from headrace.core.matching.patterns.operators import Path
from headrace.core.matching.patterns.parser import EventPattern, parse_pattern
from headrace.core.values.moments import moment
from headrace.core.values.shards import whole_name
from headrace.errors import MalformedEvent, MissingField, ProjectError, WrongField

FiringReason: TypeAlias = Literal[
    "fired",
    "fired_as_another_event",
    "other_stream",
    "not_registered",
    "removed",
    "in_backlog",
    "dead_letter",
    "settled",
    "pattern",
    "field",
    "declaration_changed",
    "not_answered",
    "python",
    "unknown",
]
MAX_CHECKED_CHARS: Final = 100_000_000
"""Limit of the characters of a payload times the fields of the pattern that is checked on it; about a second."""
_CLOSE_MICROS: Final = 60_000_000
"""An event that is stored so soon after a declaration may have been read before it."""
_PATHS: Final = ("source", "type", "id", "follows", "subject", "occurred")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedEvent:
    """An event of the log. `is_message`: its payload is the raw event that watches tested. Times are in microseconds since 1970."""

    seq: int
    stream: str | None
    lane: str | None
    position: int | None
    received: int
    payload: str
    is_message: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTrigger:
    """A trigger as it is declared now. `arguments` are its keyword arguments, or None if they are `unreadable` for that reason.

    `registered` is the time of its first declaration, `declared` that of the last change, `removed` that of its removal, in microseconds
    since 1970. `has_secret`: a value of its pattern is a stored secret.
    """

    name: str
    stream: str | None
    state: str
    is_watch: bool
    arguments: Mapping[str, Any] | None
    unreadable: str | None = None
    has_secret: bool = False
    registered: int | None
    declared: int
    removed: int | None = None
    conflicts: int = 0


class OtherFiring(NamedTuple):
    """Another event of the same raw event, on which the trigger fired."""

    seq: int
    id: str


class BacklogEntry(NamedTuple):
    """The raw event in the backlog of the trigger, since a time in microseconds; `answer` is None until it is settled."""

    since: int | None
    answer: str | None


class DeadLetterFacts(NamedTuple):
    """A dead letter of the raw event that names the trigger."""

    short: str
    kind: str
    reason: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAnswers:
    """The stored answer of the trigger to the raw event of the event.

    `recorded` is the last position of its lane with a receipt. `totals` counts the answers of the trigger to all raw events of its stream.
    """

    fired: bool = False
    other: OtherFiring | None = None
    backlog: BacklogEntry | None = None
    dead_letter: DeadLetterFacts | None = None
    recorded: int | None = None
    totals: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FiringAnswer:
    """Why the trigger fired or did not: one sentence, and notes on what limits it or what to do next."""

    reason: FiringReason
    text: str
    notes: tuple[str, ...] = ()


class PatternResult(NamedTuple):
    """The result of a pattern on a payload: the nearest alternative that fails, with its failing path, or None if the pattern matches.

    `others` is the number of the other alternatives. `unchecked` are the paths into the metadata of the message, which the log does not
    have. A pattern that matches without them may have failed on one of them.
    """

    mismatch: Mismatch | None
    path: str = ""
    others: int = 0
    unchecked: tuple[str, ...] = ()


def explain_firing(event: ExplainedEvent, trigger: ExplainedTrigger, answers: ExplainedAnswers) -> FiringAnswer:
    """Return why the trigger fired on the event or did not. Stored answers count before the declaration, which may have changed since."""
    answer = _stored_answer(event, trigger, answers) or _registration(event, trigger)
    if answer is None:
        answer = _watch(event, trigger, answers) if trigger.is_watch else _python(event, trigger, answers)
    if answer.reason == "fired":
        return answer
    return FiringAnswer(answer.reason, answer.text, (*answer.notes, *_state_notes(event, trigger, answer.reason)))


def check_pattern(pattern: EventPattern, value: Any) -> PatternResult:
    """Return the result of a pattern on the JSON value of a payload. Fields of the metadata count as passed."""
    nearest: tuple[Mismatch, str] | None = None
    unchecked: list[str] = []
    matches = False
    for alternative in pattern.alternatives:
        fields = tuple(field for field in alternative if field[0][0] != METADATA)
        mismatches = explain(EventPattern((fields,)), value)
        if not mismatches and len(fields) == len(alternative):
            return PatternResult(None)
        if not mismatches:
            matches = True
            unchecked += [".".join(path) for path, _ in alternative if path[0] == METADATA]
        elif nearest is None or mismatches[0].passed > nearest[0].passed:
            nearest = mismatches[0], failing_path([path for path, _ in fields], mismatches[0].passed)
    if matches or nearest is None:
        return PatternResult(None, unchecked=tuple(dict.fromkeys(unchecked)))
    return PatternResult(*nearest, others=len(pattern.alternatives) - 1)


def failing_path(paths: list[Path], passed: int) -> str:
    """Return the path that fails after `passed` others, or all paths if each passes and no single element of an array has all of them."""
    return ".".join(paths[passed]) if passed < len(paths) else ", ".join(map(".".join, paths))


def _stored_answer(event: ExplainedEvent, trigger: ExplainedTrigger, answers: ExplainedAnswers) -> FiringAnswer | None:
    """Return the answer that the log or custody has, or None."""
    name = trigger.name
    if answers.fired:
        return FiringAnswer("fired", f"{name} fired on event {event.seq}, which the log stored at {_time(event.received)}.")
    if event.stream is None or event.stream != trigger.stream:
        return _other_stream(event, trigger)
    if answers.other is not None:
        other = answers.other
        return FiringAnswer("fired_as_another_event", f"{name} fired on the same raw event, as event {other.seq} with the id {other.id}.")
    waits = answers.backlog is not None and answers.backlog.answer is None
    if answers.backlog is not None and waits:
        since = "" if answers.backlog.since is None else f", since {_time(answers.backlog.since)}"
        return FiringAnswer("in_backlog", f"The raw event waits in the backlog of {name}{since}.")
    if answers.dead_letter is not None:
        dead = answers.dead_letter
        text = f"The raw event waits in the backlog of {name}, since its dead letter is redriven. Before: {_sentence(dead.reason)}"
        if dead.state != "redriven":
            text = f"The raw event is a dead letter of {name} ({dead.kind.replace('_', ' ')}, {dead.state}): {_sentence(dead.reason)}"
        return FiringAnswer("dead_letter", text, (f"To see it: headrace dead-letters show {dead.short}",))
    if answers.backlog is not None and (answers.backlog.answer != "filtered" or not trigger.is_watch):
        settled = {"filtered": "did not fire on it", "dropped": "an operator dropped it"}
        how = settled.get(answers.backlog.answer or "", f"its answer is {answers.backlog.answer}")
        return FiringAnswer("settled", f"The raw event was in the backlog of {name}, which is settled: {how}.")
    return None


def _other_stream(event: ExplainedEvent, trigger: ExplainedTrigger) -> FiringAnswer:
    reads = f"{trigger.name} polls alone and reads no shared stream" if trigger.stream is None else f"{trigger.name} reads {trigger.stream}"
    if event.stream is None:
        return FiringAnswer("other_stream", f"{reads}; the event came from a trigger that polls alone, not from a shared stream.")
    of_whole = trigger.stream is not None and whole_name(trigger.stream) == whole_name(event.stream)
    kind = "another part of the stream, the shard" if of_whole else "another stream,"
    changed = () if trigger.declared <= event.received else (f"{trigger.name} may have read that stream before {_time(trigger.declared)}.",)
    return FiringAnswer("other_stream", f"{reads}; the event came from {kind} {event.stream}.", changed)


def _registration(event: ExplainedEvent, trigger: ExplainedTrigger) -> FiringAnswer | None:
    """Return the answer if the trigger was not registered when the log stored the event, or None."""
    stored = f"the log stored the event at {_time(event.received)}"
    if trigger.removed is not None and trigger.removed <= event.received:
        return FiringAnswer("removed", f"{trigger.name} was removed from its project at {_time(trigger.removed)}, before {stored}.")
    if trigger.registered is not None and trigger.registered > event.received:
        return FiringAnswer("not_registered", f"{trigger.name} was registered at {_time(trigger.registered)}, after {stored}.")
    return None


def _watch(event: ExplainedEvent, trigger: ExplainedTrigger, answers: ExplainedAnswers) -> FiringAnswer:
    """Return the answer of a watch from its pattern and its declared fields."""
    name, arguments = trigger.name, trigger.arguments
    if arguments is None:
        return FiringAnswer("unknown", f"The declaration of {name} cannot be read, so its pattern is not checked: {trigger.unreadable}")
    if not event.is_message:
        text = f"The payload of event {event.seq} is not the raw event that {name} tested: a trigger in Python wrote it."
        return FiringAnswer("unknown", text, ("No watch fired on the event, so the log does not have its raw event.",))
    try:
        match = arguments.get("match")
        pattern = None if match is None else parse_pattern(match)
        envelope = _envelope(arguments)
    except ProjectError as error:
        return FiringAnswer("unknown", f"The declaration of {name} is not one that this API reads: {error}")
    size = 0 if pattern is None else len(event.payload) * sum(map(len, pattern.alternatives))
    if size > MAX_CHECKED_CHARS:
        return FiringAnswer("unknown", f"The payload of event {event.seq} is too long to check the pattern of {name} on it.")
    value = msgspec.json.decode(event.payload)
    value = {} if value is None else value
    if not isinstance(value, dict):
        return FiringAnswer("pattern", f"The payload of event {event.seq} is not a JSON object, so no pattern matches it.")
    try:
        result = PatternResult(None) if pattern is None else check_pattern(pattern, value)
    except MalformedEvent as error:
        return FiringAnswer("unknown", f"The pattern of {name} cannot be checked: {error}")
    if result.mismatch is not None:
        return _not_matched(trigger, result)
    return _matched(event, trigger, answers, result, _field_error(envelope, event, value))


def _not_matched(trigger: ExplainedTrigger, result: PatternResult) -> FiringAnswer:
    what = f"{result.path} fails; its value is hidden, because the pattern has a stored secret"
    if result.mismatch is not None and not trigger.has_secret:
        what = result.mismatch.reason
    one = result.others == 1
    others = f"{result.others:,} other alternative{'' if one else 's'} of the pattern {'fails' if one else 'fail'} too."
    return FiringAnswer("pattern", f"The pattern of {trigger.name} does not match: {what}.", (others,) if result.others else ())


def _matched(
    event: ExplainedEvent, trigger: ExplainedTrigger, answers: ExplainedAnswers, result: PatternResult, field_error: str | None
) -> FiringAnswer:
    """Return why a watch did not fire although its pattern matches now."""
    name = trigger.name
    checked = f"The pattern of {name} matches"
    notes = tuple(_unchecked(result.unchecked))
    if notes:
        checked = f"The other fields of the pattern of {name} match"
    if field_error is not None:
        return FiringAnswer("field", f"{checked}, but the raw event has not all fields that the watch declares: {field_error}", notes)
    if trigger.declared > event.received:
        text = f"{checked} now, but its declaration changed at {_time(trigger.declared)}, after the log stored the event."
        return FiringAnswer("declaration_changed", text, notes)
    if _is_pending(event, answers):
        return FiringAnswer("not_answered", f"{checked}, but {_pending(answers)}", notes)
    if notes:
        return FiringAnswer("pattern", f"{checked}, so probably one of its fields in the metadata of the message failed.", notes)
    if trigger.conflicts:
        dropped = f"{name} dropped {trigger.conflicts:,} events with a known id and another payload; this one may be among them."
        notes = (*notes, dropped)
    return FiringAnswer("unknown", f"{checked} now, but no firing, dead letter or backlog of the raw event is stored.", notes)


def _python(event: ExplainedEvent, trigger: ExplainedTrigger, answers: ExplainedAnswers) -> FiringAnswer:
    """Return the answer of a trigger in Python: its code decides, so only its counts are known."""
    name = trigger.name
    notes = [f"Its lines about the raw event, if it logs any: headrace logs trigger {name}"]
    if answers.totals is not None:
        counts = ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in answers.totals.items() if number)
        notes.insert(0, f"Its answers to all raw events of the stream, other than to skip them: {counts or 'none'}.")
    if _is_pending(event, answers):
        return FiringAnswer("not_answered", f"{name} may not have answered the raw event yet: {_pending(answers)}", tuple(notes))
    if trigger.declared > event.received:
        text = f"{name} did not fire, and its declaration changed at {_time(trigger.declared)}, after the log stored the event."
        return FiringAnswer("declaration_changed", text, tuple(notes))
    text = f"{name} is a trigger in Python and did not fire: its code skipped the raw event, or a dead letter of it is pruned."
    return FiringAnswer("python", text, tuple(notes))


def _is_pending(event: ExplainedEvent, answers: ExplainedAnswers) -> bool:
    return event.position is not None and (answers.recorded is None or answers.recorded < event.position)


def _pending(answers: ExplainedAnswers) -> str:
    end = "there are none yet" if answers.recorded is None else f"they end at position {answers.recorded:,}"
    return f"the receipts of its lane do not cover it: {end}."


def _unchecked(paths: tuple[str, ...]) -> Iterator[str]:
    if paths:
        yield f"Not checked, because the log does not have the metadata of messages: {', '.join(paths)}."


def _state_notes(event: ExplainedEvent, trigger: ExplainedTrigger, reason: FiringReason) -> Iterator[str]:
    """Yield notes on the state of the trigger and on a declaration near the event."""
    name = trigger.name
    if reason in {"pattern", "field", "unknown", "settled"} and trigger.declared > event.received:
        yield f"The declaration of {name} changed at {_time(trigger.declared)}, after the log stored the event: it may have been different."
    if reason in {"unknown", "python"} and 0 <= event.received - trigger.declared <= _CLOSE_MICROS:
        yield f"{name} was declared at {_time(trigger.declared)}, just before the log stored the event: it may have been read before."
    if trigger.state == "parked":
        yield f"{name} is parked. To restart it: headrace triggers resume {name}"
    elif trigger.state == "removed" and reason != "removed" and trigger.removed is not None:
        yield f"{name} is not declared any more, since {_time(trigger.removed)}."
    elif trigger.state in {"waiting", "failed"}:
        yield f"{name} does not run now: its state is {trigger.state}."


def _envelope(arguments: Mapping[str, Any]) -> Envelope:
    """Return the declared fields of a watch, without those in the metadata. A source or type that is not a path is any text."""
    paths: dict[str, Any] = {
        name: path
        for name in _PATHS
        if isinstance(text := arguments.get(name), str) and text.startswith(("$", METADATA))
        if not (path := JsonPath.parse(text)).reads_metadata
    }
    return Envelope(source=paths.pop("source", "-"), type=paths.pop("type", "-"), **paths)


def _field_error(envelope: Envelope, event: ExplainedEvent, value: Any) -> str | None:
    try:
        envelope.extract(value, stream=event.stream or "", lane=event.lane or "", position=event.position, message_id="-")
    except (MissingField, WrongField) as error:
        return str(error)
    return None


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _time(micros: int) -> str:
    return moment(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Which group, birthmark and place a stream key is read with. Pure.

A stream of Redis has no identity of its own: a key that is deleted and created again looks like before. The birthmark is in the name of our
consumer, `headrace@3fa9c1`, so it is deleted with the stream. The state has it too, and outlives the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from headrace.errors import UpstreamError
from headrace.sources.redis.client import StreamFacts, StreamKey
from headrace.sources.redis.entry_ids import NO_ID, limited_position, parse_id

CONSUMER_PREFIX: Final = "headrace@"
LATEST_ID: Final = "$"


class GroupPlan(NamedTuple):
    """What to do before a stream key is read. `how` is None if all is as the state says. `problem` names what may be lost."""

    mark: str
    how: Literal["create", "set", "keep"] | None = None
    id: str = NO_ID
    problem: str | None = None


def consumer_name(mark: str) -> str:
    """Return the name of our consumer in a group."""
    return f"{CONSUMER_PREFIX}{mark}"


def plan_group(key: StreamKey, facts: StreamFacts, start: str, new_mark: str, *, was_read: bool) -> GroupPlan:
    """Return how to read a stream key.

    Args:
        key: The stream key and the group.
        facts: What the server has.
        start: The id after which the first reading begins, or LATEST_ID.
        new_mark: The birthmark for a new lane.
        was_read: Whether the event log has receipts of the upstream.

    Raises:
        UpstreamError: Other consumers of the group hold entries.
    """
    state, group, name = facts.state, facts.group, key.stream
    known = state.get("mark")
    if group is not None:
        _check_consumers(key, facts.consumers)
        read_to = _text(group["last-delivered-id"])
        marks = [one.removeprefix(CONSUMER_PREFIX) for one in facts.consumers if one.startswith(CONSUMER_PREFIX)]
        if known is not None and known in marks:
            if state.get("delivered") == read_to:
                return GroupPlan(known)
            problem = f"Another program has moved group {key.group!r} from {state.get('delivered')} to {read_to}."
            return GroupPlan(known, "keep", read_to, problem)
        if marks:
            return GroupPlan(marks[0], "keep", read_to)
        if known is None:
            return GroupPlan(new_mark, "keep", read_to)
    how: Literal["create", "set"] = "create" if group is None else "set"
    if known is None:
        if not was_read:
            return GroupPlan(new_mark, how, start)
        problem = f"Group {key.group!r} of stream {name!r} and its progress are missing. Entries that were not read before may be missing."
        return GroupPlan(new_mark, how, NO_ID, problem)
    if facts.stream is not None and is_same_stream(facts.stream, state):
        begin = state.get("committed") or state.get("begin") or NO_ID
        return GroupPlan(known, how, begin, f"Another program has deleted group {key.group!r}: entries after {begin} are read again.")
    problem = (
        f"Stream {name!r} was deleted, or created again. Entries of the earlier one after {state.get('committed') or state.get('begin')} "
        "may be missing."
    )
    return GroupPlan(new_mark, how, NO_ID, problem)


def next_position(state: Mapping[str, str]) -> int:
    """Return the position after the last entry up to which all are answered, or after the id at which the lane began."""
    return limited_position(state.get("committed") or state.get("begin") or NO_ID) + 1


def is_same_stream(stream: Mapping[str, Any], state: Mapping[str, str]) -> bool:
    """Return whether a stream can be the one of which the state counts entries. A new stream has fewer, or younger ones."""
    read, counted = state.get("read"), int(state.get("counted", 0))
    if read is None:
        return False
    added, length = int(stream["entries-added"]), int(stream["length"])
    first, last = (parse_id(_text(stream[name])) for name in ("recorded-first-entry-id", "last-generated-id"))
    if last < parse_id(read) or added < counted:
        return False
    return not length or first <= parse_id(read) or added - length >= counted


def _check_consumers(key: StreamKey, consumers: Mapping[str, int]) -> None:
    others = sorted(name for name, pending in consumers.items() if pending and not name.startswith(CONSUMER_PREFIX))
    if others:
        raise UpstreamError(
            f"Group {key.group!r} of stream {key.stream!r} has other consumers with unacknowledged entries: {', '.join(others[:5])}.",
            hint="Give the upstream a group of its own, or acknowledge their entries.",
        )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

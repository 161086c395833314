"""Find the events that follow, at any depth, an event in a dead letter or a held event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """An event's key and its leader's key, or None if it has no leader."""

    key: bytes
    leader: bytes | None


class Above(NamedTuple):
    """A leader in the log: its own leader, and whether the pipeline takes it."""

    leader: bytes | None
    taken: bool


FindLeaders = Callable[[Collection[bytes]], Mapping[bytes, Above]]
"""Returns the leaders of the given keys that are in the log."""


def followers(links: Sequence[Link], blocked: Collection[bytes], find: FindLeaders) -> list[bool]:
    """Return which of the events follow a blocked one, at any depth. `links` are in the order in which the pipeline takes them.

    A chain may lead through events that the pipeline does not take. It ends at an event that the pipeline took earlier:
    that event was not blocked, so nothing above it matters. An event whose leader comes later in `links` was released
    without its leader.
    """
    if not blocked:
        return [False] * len(links)
    others = _leaders_above(links, blocked, find)
    bad = set(blocked)
    result = []
    for link in links:
        result.append(_first_above(link, others) in bad)
        if result[-1]:
            bad.add(link.key)
    return result


def first_without_leader(links: Sequence[Link], find: FindLeaders) -> int:
    """Return how many of the first events do not follow each other at any depth: at least one, if there is one."""
    others = _leaders_above(links, (), find)
    before: set[bytes] = set()
    for count, link in enumerate(links):
        if _first_above(link, others) in before:
            return count
        before.add(link.key)
    return len(links)


def _first_above(link: Link, others: Mapping[bytes, bytes | None]) -> bytes | None:
    """Return the nearest event above that is not in `others`, or None if there is none or it is the event itself."""
    leader, seen = link.leader, {link.key}
    while leader is not None and leader in others and leader not in seen:
        seen.add(leader)
        leader = others[leader]
    return None if leader in seen else leader


def _leaders_above(links: Sequence[Link], blocked: Collection[bytes], find: FindLeaders) -> dict[bytes, bytes | None]:
    """Return the leaders of events above that the pipeline does not take, up to events that it takes or that are blocked."""
    others: dict[bytes, bytes | None] = {}
    seen: set[bytes] = set()
    mine = {link.key for link in links}
    missing = {link.leader for link in links if link.leader is not None and link.leader not in mine and link.leader not in blocked}
    while missing:
        seen |= missing
        above = find(missing)
        others |= {key: one.leader for key, one in above.items() if not one.taken}
        leaders = {one.leader for one in above.values() if not one.taken and one.leader is not None}
        missing = {key for key in leaders if key not in seen and key not in mine and key not in blocked}
    return others

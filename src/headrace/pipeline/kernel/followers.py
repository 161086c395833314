"""Which events follow, at any depth, an event that is in a dead letter or held because of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """An event, by its key, and its leader's key (None: it follows no other)."""

    key: bytes
    leader: bytes | None


class Above(NamedTuple):
    """A leader that the log has: its own leader, and whether the pipeline takes it."""

    leader: bytes | None
    taken: bool


FindLeaders = Callable[[Collection[bytes]], Mapping[bytes, Above]]
"""Returns those of the events with these keys that the log has."""


def followers(links: Sequence[Link], blocked: Collection[bytes], find: FindLeaders) -> list[bool]:
    """Return which of the events follow a blocked one, at any depth. `links` are in the order in which the pipeline takes them.

    A chain may lead through events that the pipeline does not take. It ends at one that the pipeline took before: that one was not
    blocked, so nothing above it matters. An event that follows a later one of `links` was released without its leader.
    """
    if not blocked:
        return [False] * len(links)
    others = _climbed(links, blocked, find)
    bad = set(blocked)
    found = []
    for link in links:
        found.append(_first_above(link, others) in bad)
        if found[-1]:
            bad.add(link.key)
    return found


def first_without_leader(links: Sequence[Link], find: FindLeaders) -> int:
    """Return how many of the first events follow none of each other, at any depth: at least one, where there is one."""
    others = _climbed(links, (), find)
    before: set[bytes] = set()
    for count, link in enumerate(links):
        if _first_above(link, others) in before:
            return count
        before.add(link.key)
    return len(links)


def _first_above(link: Link, others: Mapping[bytes, bytes | None]) -> bytes | None:
    """Return the first event above that is not one of the `others`, None where there is none or where it is the event itself."""
    leader, seen = link.leader, {link.key}
    while leader is not None and leader in others and leader not in seen:
        seen.add(leader)
        leader = others[leader]
    return None if leader in seen else leader


def _climbed(links: Sequence[Link], blocked: Collection[bytes], find: FindLeaders) -> dict[bytes, bytes | None]:
    """Return the leaders of events above that the pipeline does not take, up to those that it takes or that are blocked."""
    others: dict[bytes, bytes | None] = {}
    looked: set[bytes] = set()
    mine = {link.key for link in links}
    wanted = {link.leader for link in links if link.leader is not None and link.leader not in mine and link.leader not in blocked}
    while wanted:
        looked |= wanted
        above = find(wanted)
        others |= {key: one.leader for key, one in above.items() if not one.taken}
        leaders = {one.leader for one in above.values() if not one.taken and one.leader is not None}
        wanted = {key for key in leaders if key not in looked and key not in mine and key not in blocked}
    return others

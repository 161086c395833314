"""Pipelines with `on_failure="hold"`: what follows an event in a dead letter is held until this dead letter is settled or discarded.

Such a pipeline has one open run at a time, so each run is planned when the outcomes of all runs before it are known. Its events are in four
sequences of held events, each in the order in which it takes them:

    queue ──────► a run ──it fails, and has several events──► returned ──► a smaller run
      │                    └──it is one event: a dead letter
      └─what follows a dead letter──► blocked ──it is settled or discarded──► freed ──► a run

`returned` goes first, then `freed`, then the queue. With `batch="each"`, events that follow another one of the same plan are returned too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np

from headrace.core.batching import due_batches
from headrace.core.ranges import numbers_of
from headrace.pipeline.kernel.followers import Above, FindLeaders, first_without_leader, followers
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.ordering.held_events import HeldEvents
from headrace.pipeline.runs.run import Run
from headrace.pipeline.runs.slices import Slice
from headrace.pipeline_declaration import Pipeline

BLOCKED: Final = "/blocked"
FREED: Final = "/freed"
RETURNED: Final = "/returned"
KINDS: Final = (RETURNED, FREED, BLOCKED, "")
"""Suffixes of a pipeline's sequences, in the order in which they are used once nothing is blocked."""
MAX_SINGLE_RUNS: Final = 500
"""Runs of one event in one plan, if none of the events follows another."""


class FollowerHolds:
    """Plans the runs of one scope's pipelines that hold followers. `sequence` returns the held events of a sequence name."""

    def __init__(self, scope: str, reader: LogReader, max_rows: int, sequence: Callable[[str], HeldEvents]) -> None:
        self._scope = scope
        self._reader = reader
        self._max_rows = max_rows
        self._sequence = sequence
        self._dead_letters: dict[str, dict[str, set[bytes]]] = {}
        self._blocked: dict[str, set[bytes]] = {}
        self._max_events: dict[str, int] = {}

    def take_back(self, run: Run, now: int) -> None:
        """Put the events of a failed run before all others of its pipeline. The next run has half of them."""
        self._return(run.pipeline, run.slice, now)
        self._max_events[run.pipeline] = max(1, len(run.slice) // 2)

    def has_free(self, pipeline: Pipeline) -> bool:
        """Return whether the pipeline has events for a run now."""
        name = pipeline.name
        if len(self._sequence(name + RETURNED)) or len(self._sequence(name + FREED)):
            return True
        return isinstance(pipeline.batch, str) and len(self._sequence(name)) > 0

    def has_news(self, pipeline: Pipeline) -> bool:
        """Return whether the dead letters that hold back events changed since the last run. Queries the API if events are blocked."""
        name = pipeline.name
        return len(self._sequence(name + BLOCKED)) > 0 and self._dead_letters.get(name, {}).keys() != self._read_dead_letters(name).keys()

    def runs(self, pipeline: Pipeline, now: int) -> list[Slice]:
        """Return the next runs of a pipeline without an open run: one, or several of one event each."""
        name = pipeline.name
        if not any(len(self._sequence(name + kind)) for kind in KINDS):
            return []
        find = self._leaders_for(pipeline)
        bad = self._blocking_keys(pipeline, find, now)
        events = self._next(pipeline, now)
        if events is None:
            return []
        links = self._reader.links(events.seqs) if bad or pipeline.batch == "each" else []
        if bad:
            follows = np.array(followers(links, bad, find), dtype=np.bool_)
            held = events.take(np.flatnonzero(follows))
            self._sequence(name + BLOCKED).append(held.seqs, held.positions, held.marks, now)
            self._blocked[name].update(link.key for link, is_bad in zip(links, follows, strict=True) if is_bad)
            events, links = events.take(np.flatnonzero(~follows)), [links[row] for row in np.flatnonzero(~follows)]
        if not len(events):
            return []
        if pipeline.batch != "each":
            return [events]
        count = first_without_leader(links, find)
        self._return(name, events.take(np.arange(count, len(events))), now)
        return [events.take(np.array([row])) for row in range(count)]

    def _next(self, pipeline: Pipeline, now: int) -> Slice | None:
        """Take the first events of the first sequence that is not empty."""
        name = pipeline.name
        max_events = MAX_SINGLE_RUNS if pipeline.batch == "each" else self._max_rows
        for kind in (RETURNED, FREED):
            held = self._sequence(name + kind)
            if len(held):
                return Slice(*held.take(min(max_events, self._max_events.pop(name, max_events)) if kind == RETURNED else max_events))
            self._max_events.pop(name, None)
        queue = self._sequence(name)
        sizes = due_batches(pipeline.batch, len(queue), queue.first, queue.last, now)
        if not sizes:
            return None
        return Slice(*queue.take(min(len(queue), max_events) if isinstance(pipeline.batch, str) else sizes[0]))

    def _return(self, name: str, events: Slice, now: int) -> None:
        """Put events before all others of a pipeline."""
        returned = self._sequence(name + RETURNED)
        rest = Slice(*returned.take(len(returned)))
        for part in (events, rest):
            returned.append(part.seqs, part.positions, part.marks, now)

    def _blocking_keys(self, pipeline: Pipeline, find: FindLeaders, now: int) -> set[bytes]:
        """Return the keys of events in dead letters and of blocked events. Free events that are no longer blocked."""
        name = pipeline.name
        known, dead_letters = self._dead_letters.setdefault(name, {}), self._read_dead_letters(name)
        closed = known.keys() - dead_letters.keys()
        blocked = self._sequence(name + BLOCKED)
        for id in closed:
            del known[id]
        for id in dead_letters.keys() - known.keys():
            known[id] = {link.key for link in self._reader.links(numbers_of(dead_letters[id]))}
        dead = {key for keys in known.values() for key in keys}
        if name not in self._blocked or (closed and len(blocked)):
            links = self._reader.links(blocked.seqs)
            still = np.array(followers(links, dead, find), dtype=np.bool_)
            self._blocked[name] = {link.key for link, is_bad in zip(links, still, strict=True) if is_bad}
            if not still.all():
                events = Slice(*blocked.take(len(blocked)))
                for held, rows in ((blocked, still), (self._sequence(name + FREED), ~still)):
                    part = events.take(np.flatnonzero(rows))
                    held.append(part.seqs, part.positions, part.marks, now)
        return dead | self._blocked[name]

    def _read_dead_letters(self, name: str) -> Mapping[str, list[tuple[int, int]]]:
        return {one.id: one.seqs for one in self._reader.dead_letters(self._scope, name)}

    def _leaders_for(self, pipeline: Pipeline) -> FindLeaders:
        def find(keys: Collection[bytes]) -> Mapping[bytes, Above]:
            return {one.key: Above(one.leader, any(map(pipeline.takes, one.triggers))) for one in self._reader.leaders(sorted(keys))}

        return find

"""Pipelines with `on_failure="hold"`: what follows an event in a dead letter is held until the letter is settled or discarded.

Such a pipeline has one open run at a time, so each run is planned when the outcomes of all runs before it are known. Its events are in four
sequences of held events, each in the order in which it takes them:

    queue ──────► a run ──it fails, and has several events──► returned ──► a smaller run
      │                    └──it is one event: a dead letter
      └─what follows a dead letter──► blocked ──the letter is settled or discarded──► freed ──► a run

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
from headrace.project import Pipeline

BLOCKED: Final = "/blocked"
FREED: Final = "/freed"
RETURNED: Final = "/returned"
KINDS: Final = (RETURNED, FREED, BLOCKED, "")
"""What follows a pipeline's name in the name of each sequence, in the order in which they go where nothing is blocked any more."""
MAX_SINGLES: Final = 500
"""Runs of one event that are planned at once, where none of the events follows another."""


class FollowerHolds:
    """Chooses the runs of one scope's pipelines that hold followers. `sequence` returns the sequence of a name."""

    def __init__(self, scope: str, reader: LogReader, max_rows: int, sequence: Callable[[str], HeldEvents]) -> None:
        self._scope = scope
        self._reader = reader
        self._max_rows = max_rows
        self._sequence = sequence
        self._letters: dict[str, dict[str, set[bytes]]] = {}
        self._blocked: dict[str, set[bytes]] = {}
        self._most: dict[str, int] = {}

    def take_back(self, run: Run, now: int) -> None:
        """Put the events of a run that failed before all others of its pipeline; the next run has half of them."""
        self._return(run.pipeline, run.slice, now)
        self._most[run.pipeline] = max(1, len(run.slice) // 2)

    def has_free(self, pipeline: Pipeline) -> bool:
        """Return whether the pipeline has events that need not wait for the time."""
        name = pipeline.name
        if len(self._sequence(name + RETURNED)) or len(self._sequence(name + FREED)):
            return True
        return isinstance(pipeline.batch, str) and len(self._sequence(name)) > 0

    def has_news(self, pipeline: Pipeline) -> bool:
        """Return whether other dead letters hold events than at the last run: asks the API where events are blocked."""
        name = pipeline.name
        return len(self._sequence(name + BLOCKED)) > 0 and self._letters.get(name, {}).keys() != self._read_letters(name).keys()

    def runs(self, pipeline: Pipeline, now: int) -> list[Slice]:
        """Return the next runs of a pipeline that has no open run: one, or several of an event each."""
        name = pipeline.name
        if not any(len(self._sequence(name + kind)) for kind in KINDS):
            return []
        find = self._leaders_for(pipeline)
        bad = self._bad(pipeline, find, now)
        found = self._next(pipeline, now)
        if found is None:
            return []
        links = self._reader.links(found.seqs) if bad or pipeline.batch == "each" else []
        if bad:
            follows = np.array(followers(links, bad, find), dtype=np.bool_)
            held = found.take(np.flatnonzero(follows))
            self._sequence(name + BLOCKED).append(held.seqs, held.positions, held.marks, now)
            self._blocked[name].update(link.key for link, is_bad in zip(links, follows, strict=True) if is_bad)
            found, links = found.take(np.flatnonzero(~follows)), [links[row] for row in np.flatnonzero(~follows)]
        if not len(found):
            return []
        if pipeline.batch != "each":
            return [found]
        count = first_without_leader(links, find)
        self._return(name, found.take(np.arange(count, len(found))), now)
        return [found.take(np.array([row])) for row in range(count)]

    def _next(self, pipeline: Pipeline, now: int) -> Slice | None:
        """Take the first events of the first sequence that has some."""
        name = pipeline.name
        most = MAX_SINGLES if pipeline.batch == "each" else self._max_rows
        for kind in (RETURNED, FREED):
            held = self._sequence(name + kind)
            if len(held):
                return Slice(*held.take(min(most, self._most.pop(name, most)) if kind == RETURNED else most))
            self._most.pop(name, None)
        queue = self._sequence(name)
        sizes = due_batches(pipeline.batch, len(queue), queue.first, queue.last, now)
        if not sizes:
            return None
        return Slice(*queue.take(min(len(queue), most) if isinstance(pipeline.batch, str) else sizes[0]))

    def _return(self, name: str, events: Slice, now: int) -> None:
        """Put events before all others of a pipeline."""
        returned = self._sequence(name + RETURNED)
        rest = Slice(*returned.take(len(returned)))
        for part in (events, rest):
            returned.append(part.seqs, part.positions, part.marks, now)

    def _bad(self, pipeline: Pipeline, find: FindLeaders, now: int) -> set[bytes]:
        """Return the keys of the events in dead letters and of those that are blocked; free those that are blocked no longer."""
        name = pipeline.name
        known, letters = self._letters.setdefault(name, {}), self._read_letters(name)
        gone = known.keys() - letters.keys()
        blocked = self._sequence(name + BLOCKED)
        for id in gone:
            del known[id]
        for id in letters.keys() - known.keys():
            known[id] = {link.key for link in self._reader.links(numbers_of(letters[id]))}
        dead = {key for keys in known.values() for key in keys}
        if name not in self._blocked or (gone and len(blocked)):
            links = self._reader.links(blocked.seqs)
            still = np.array(followers(links, dead, find), dtype=np.bool_)
            self._blocked[name] = {link.key for link, is_bad in zip(links, still, strict=True) if is_bad}
            if not still.all():
                events = Slice(*blocked.take(len(blocked)))
                for held, rows in ((blocked, still), (self._sequence(name + FREED), ~still)):
                    part = events.take(np.flatnonzero(rows))
                    held.append(part.seqs, part.positions, part.marks, now)
        return dead | self._blocked[name]

    def _read_letters(self, name: str) -> Mapping[str, list[tuple[int, int]]]:
        return {letter.id: letter.seqs for letter in self._reader.letters(self._scope, name)}

    def _leaders_for(self, pipeline: Pipeline) -> FindLeaders:
        def find(keys: Collection[bytes]) -> Mapping[bytes, Above]:
            return {one.key: Above(one.leader, any(map(pipeline.takes, one.triggers))) for one in self._reader.leaders(sorted(keys))}

        return find

"""Counts of how often each field of a watch's pattern fails, from samples of the raw events of its stream.

The cost is bounded, whatever the rate of raw events and the number of watches. One raw event in each second is sampled, for the next
watches in rotation. All streams of the process use at most `MAX_TIME_SHARE` of its time for samples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

from headrace.core.matching.leaf_failures import failed_paths, leaf_groups, matches_pattern, path_text
from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.parser import EventPattern
from headrace.errors import MalformedEvent

INTERVAL_SECONDS: Final = 1.0
"""Shortest time between two sampled raw events of a stream."""
MAX_WATCHES: Final = 50
"""Maximum number of watches that one raw event is sampled for."""
MAX_SAMPLE_SECONDS: Final = 0.002
"""Time after which a sample ends, although more watches are due."""
MAX_TIME_SHARE: Final = 0.01
MAX_EVENT_BYTES: Final = 64 * 1024
"""Longer raw events are not sampled."""
MAX_FIELDS: Final = 100
"""Patterns with more fields in their alternatives are not sampled."""
MAX_SAMPLES: Final = 100
"""With this number of samples, the counts of a watch are halved, so that later samples count more."""
MAX_REPORTED_PATHS: Final = 10
"""Maximum number of paths in the report of one watch: the paths with the most failures."""


class PathFailures(NamedTuple):
    """The number of samples that failed at a path of a pattern."""

    path: str
    failed: int


class PatternSample(NamedTuple):
    """The counts of one watch: the samples of late, and how many of them matched."""

    trigger_id: int
    samples: int
    matched: int
    paths: tuple[PathFailures, ...]


class SampleBudget:
    """The time that all samplers of a process may use: after a sample, none begins until its share of the time has passed."""

    def __init__(self) -> None:
        self.next = 0.0

    def use(self, start: float, end: float) -> None:
        """Count the time of one sample, in seconds of `perf_counter`."""
        self.next = end + (end - start) * (1 / MAX_TIME_SHARE - 1)


class _Counts:
    """The counts of one watch; `failed` has one for each path of its pattern. Counts up to 256 take no memory of their own."""

    __slots__ = ("failed", "matched", "pattern", "samples")

    def __init__(self, pattern: EventPattern, paths: int) -> None:
        self.pattern = pattern
        self.samples = self.matched = 0
        self.failed = [0] * paths

    def add(self, failed: list[bool], *, matched: bool) -> None:
        if self.samples >= MAX_SAMPLES:
            self.samples, self.matched = (self.samples + 1) // 2, (self.matched + 1) // 2
            self.failed = [(count + 1) // 2 for count in self.failed]
        self.samples += 1
        self.matched += matched
        self.failed = [count + one for count, one in zip(self.failed, failed, strict=True)]


_BUDGET: Final = SampleBudget()


class PatternSampler:
    """Samples raw events for the watches of one stream. `due` is the time of the next sample, by the clock of the stream."""

    def __init__(self, budget: SampleBudget = _BUDGET) -> None:
        self.due = 0.0
        self._budget = budget
        self._rotation: list[int] = []
        self._counts: dict[int, _Counts] = {}
        self._changed: dict[int, None] = {}

    def sample(self, patterns: Mapping[int, EventPattern | None], event: Any, now: float, *, size: int) -> None:
        """Count the failures of the next watches on an event of `size` bytes. Does not raise."""
        start = perf_counter()
        self.due = now + INTERVAL_SECONDS
        if size > MAX_EVENT_BYTES or start < self._budget.next:
            return
        arrays = Arrays()
        try:
            for _ in range(min(MAX_WATCHES, len(patterns))):
                trigger_id = self._next(patterns)
                if (pattern := patterns.get(trigger_id)) is not None:
                    self._add(trigger_id, pattern, event, arrays)
                if perf_counter() - start > MAX_SAMPLE_SECONDS:
                    break
        except MalformedEvent:  # it takes too many steps, so the rest of the watches is left out
            pass
        self._budget.use(start, perf_counter())

    def take(self, limit: int) -> list[PatternSample]:
        """Return the counts of at most `limit` watches that were sampled since their last report, the longest waiting first."""
        samples = []
        for trigger_id in list(self._changed)[:limit]:
            del self._changed[trigger_id]
            if (counts := self._counts.get(trigger_id)) is not None:
                samples.append(_sample(trigger_id, counts))
        return samples

    def discard(self, trigger_ids: Collection[int]) -> None:
        """Drop the counts of watches."""
        for trigger_id in trigger_ids:
            self._counts.pop(trigger_id, None)
            self._changed.pop(trigger_id, None)

    def _next(self, patterns: Mapping[int, EventPattern | None]) -> int:
        if not self._rotation:
            self._rotation = list(patterns)
            self._rotation.reverse()
        return self._rotation.pop()

    def _add(self, trigger_id: int, pattern: EventPattern, event: Any, arrays: Arrays) -> None:
        if sum(map(len, pattern.alternatives)) > MAX_FIELDS:
            return
        groups = leaf_groups(pattern)
        counts = self._counts.get(trigger_id)
        if counts is None or counts.pattern is not pattern:
            counts = self._counts[trigger_id] = _Counts(pattern, len(groups))
        counts.add(failed_paths(groups, event, arrays), matched=matches_pattern(pattern, event, arrays))
        self._changed[trigger_id] = None


def _sample(trigger_id: int, counts: _Counts) -> PatternSample:
    failures = [PathFailures(path_text(path), failed) for path, failed in zip(leaf_groups(counts.pattern), counts.failed, strict=True)]
    worst = sorted(failures, key=lambda one: -one.failed)[:MAX_REPORTED_PATHS]
    return PatternSample(trigger_id, counts.samples, counts.matched, tuple(worst))

"""The driver's way to the log: a batch's events in one table, with the next ones fetched while a batch is handled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np
import pyarrow as pa

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiUnavailable, PipelineError
from headrace.pipeline.ranges import Ranges, ranges_of
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.runs import Redelivery

PAGE_ROWS: Final = 50_000
MOST_PICKED: Final = 10_000
PATIENCE: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reach the api; the last one again and again."""

T = TypeVar("T")


class LogReader:
    """Reads for one scope. An api that is away is waited for until `stopping` says that nobody waits any more.

    At most `ahead` events are fetched before they are asked for.
    """

    def __init__(self, client: PipelineClient, stopping: Callable[[], bool], ahead: int) -> None:
        self._client = client
        self._stopping = stopping
        self._most_ahead = ahead
        self._fetcher = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self._ahead: tuple[int, Future[list[pa.Table]]] | None = None
        self._head = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._fetcher.shutdown(cancel_futures=True)

    def read(self, after: int, to: int) -> pa.Table:
        """Return all events with after < seq <= to, in order of `seq`, in one chunk for each page.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        pages = self._fetched(after, to)
        reached = pages[-1].column("seq")[-1].as_py() if pages else after
        while reached < to:
            page = self._insist(partial(self._page, after=reached, to=to, limit=PAGE_ROWS))
            if not page.num_rows:
                break
            pages.append(page)
            reached = page.column("seq")[-1].as_py()
        return _whole(pa.concat_tables([LOG_SCHEMA.empty_table(), *pages]), to - after)

    def look_ahead(self, after: int) -> None:
        """Fetch what comes after `after` in the background, where there is something."""
        if after < self._head:
            self._ahead = (after, self._fetcher.submit(self._fetch, after))

    def pick(self, seqs: Sequence[int]) -> pa.Table:
        """Return the events with these ascending seqs, in that order.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        if not len(seqs):
            return LOG_SCHEMA.empty_table()
        ranges = ranges_of(np.asarray(seqs, dtype=np.int64))
        parts = [self._insist(partial(self._client.pick, part)) for part in _portions(ranges)]
        return _whole(pa.concat_tables([LOG_SCHEMA.empty_table(), *parts]), len(seqs))

    def redeliveries(self, after: int, to: int) -> list[Redelivery]:
        """Return what is to be given again, with after < id <= to."""
        return self._insist(lambda: self._client.redeliveries(after=after, to=to)) if after < to else []

    def _fetched(self, after: int, to: int) -> list[pa.Table]:
        """Return what was fetched ahead, as far as it is asked for."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != after:
            return []
        pages: list[pa.Table] = []
        for page in ahead[1].result():
            seqs = page.column("seq").to_numpy()
            taken = int(np.searchsorted(seqs, to, side="right"))
            if taken:
                pages.append(page.slice(0, taken))
        return pages

    def _fetch(self, after: int) -> list[pa.Table]:
        pages: list[pa.Table] = []
        rows = 0
        try:
            while rows < self._most_ahead:
                page = self._page(after=after, limit=min(PAGE_ROWS, self._most_ahead - rows))
                if not page.num_rows:
                    break
                pages.append(page)
                rows += page.num_rows
                after = page.column("seq")[-1].as_py()
                if after >= self._head:
                    break
        except ApiUnavailable:
            pass  # it is asked for again, and then insisted on, when it is needed
        return pages

    def _page(self, after: int, limit: int, to: int | None = None) -> pa.Table:
        page = self._client.page(after=after, to=to, limit=limit)
        self._head = page.head
        return page.table

    def _insist(self, ask: Callable[[], T]) -> T:
        for pause in pauses():
            try:
                return ask()
            except ApiUnavailable:
                if self._stopping():
                    raise
                time.sleep(pause)
        raise AssertionError("the pauses never end")


def pauses() -> Iterator[float]:
    """Yield the seconds before each further attempt, for ever."""
    yield from PATIENCE
    while True:
        yield PATIENCE[-1]


def _whole(found: pa.Table, wanted: int) -> pa.Table:
    """Return what was found where it is all that was wanted: the log keeps what a scope that it knows may still read."""
    if found.num_rows != wanted:
        raise PipelineError(
            f"The log has {found.num_rows} of {wanted} events that the scope still needs: the database was replaced, or the scope removed.",
            hint="Bring the database back, or begin anew with: headrace pipeline --reset-order",
        )
    return found


def _portions(ranges: Ranges) -> Iterator[Ranges]:
    """Yield ranges of not too many events at a time."""
    portion: Ranges = []
    room = MOST_PICKED
    for first, last in ranges:
        start = first
        while start <= last:
            end = min(last, start + room - 1)
            portion.append((start, end))
            room -= end - start + 1
            start = end + 1
            if not room:
                yield portion
                portion, room = [], MOST_PICKED
    if portion:
        yield portion

"""Read the event log for a driver: a batch's events in one table, with the next ones prefetched while a batch is handled."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.pipeline import PipelineClient
from headrace.core.ranges import Ranges, ranges_of
from headrace.errors import ApiUnavailable, PipelineError, RunTooLarge
from headrace.pipeline.kernel.followers import Link
from headrace.pipeline.runs.slices import Slice
from headrace.retry import retry_until_stopped
from headrace.wire.calls.execution import GET_REDELIVERIES
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.pipelines.plans import FoundLeader, ScopeDeadLetter
from headrace.wire.pipelines.runs import Redelivery

PAGE_ROWS: Final = 50_000
MAX_REQUESTED_EVENTS: Final = 10_000

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of events at which a batch ends."""
MAX_BATCH_EVENTS: Final = 100_000
"""Limit of a batch, and of a run of a pipeline without a batch policy, whatever the options say."""
MAX_ID_BYTES: Final = 2 * 1024 * 1024
"""Bytes of ids at which a batch ends: the ids of waiting events are stored with the plan."""
MAX_RUN_BYTES: Final = 1024 * 1024 * 1024
"""Maximum bytes of events in one run."""


class LogReader:
    """Reads for one scope. Repeats requests while the API is unavailable, until `stop` is set.

    Prefetches up to `ahead` events.
    """

    def __init__(self, client: PipelineClient, stop: threading.Event, ahead: int) -> None:
        self._client = client
        self._stop = stop
        self._max_ahead = min(ahead, MAX_BATCH_EVENTS)
        self._fetcher = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self._ahead: tuple[int, Future[list[pa.Table]]] | None = None
        self._head = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._fetcher.shutdown(cancel_futures=True)

    def read(self, after: int, to: int) -> pa.Table:
        """Return the events with after < seq <= to, in order of `seq`: all, or the first within MAX_BATCH_BYTES and MAX_ID_BYTES.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        pages = self._take_prefetched(after, to)
        reached = pages[-1].column("seq")[-1].as_py() if pages else after
        while reached < to and not _is_large(pages):
            page = retry_until_stopped(partial(self._page, after=reached, to=to, limit=PAGE_ROWS), self._stop, "log")
            if not page.num_rows:
                break
            pages.append(page)
            reached = page.column("seq")[-1].as_py()
        events = _within_bytes(pa.concat_tables([LOG_SCHEMA.empty_table(), *pages]))
        return _require_all(events, (events.column("seq")[-1].as_py() if events.num_rows else to) - after)

    def prefetch(self, after: int) -> None:
        """Fetch events after `after` in the background, if there are any."""
        if after < self._head:
            self._ahead = (after, self._fetcher.submit(self._fetch, after))

    def events(self, part: Slice) -> pa.Table:
        """Return the events of a slice as ORDERED_SCHEMA.

        Raises:
            PipelineError: The log no longer has one of them, or they exceed MAX_RUN_BYTES.
        """
        seqs = np.sort(part.seqs)
        table = self._events_of(seqs)
        return part.table(table.take(pa.array(np.searchsorted(seqs, part.seqs))))

    def get_by_seq(self, seqs: Sequence[int]) -> pa.Table:
        """Return the events with these ascending seqs, in that order.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        if not len(seqs):
            return LOG_SCHEMA.empty_table()
        return self._events_of(np.asarray(seqs, dtype=np.int64))

    def _events_of(self, seqs: npt.NDArray[np.int64]) -> pa.Table:
        parts = [LOG_SCHEMA.empty_table()]
        size = 0
        for portion in _portions(ranges_of(seqs)):
            parts.append(retry_until_stopped(partial(self._client.get_by_seq, portion), self._stop, "log"))
            size += parts[-1].nbytes
            if size > MAX_RUN_BYTES:
                raise RunTooLarge(
                    f"The {len(seqs)} events of one run have more than {MAX_RUN_BYTES >> 20} MiB.",
                    hint="Give the pipeline a smaller Window or Debounce, and send the events again with: headrace send",
                )
        return _require_all(pa.concat_tables(parts), len(seqs))

    def redeliveries(self, after: int, to: int) -> list[Redelivery]:
        """Return redeliveries with after < id <= to."""
        if after >= to:
            return []
        query = {"after": after, "to": to}
        page = retry_until_stopped(lambda: self._client.request(GET_REDELIVERIES, None, query=query), self._stop, "redeliveries")
        return page.redeliveries

    def positions(self, scope: str, seqs: Sequence[int]) -> list[bytes]:
        """Return the stored blocks that may have the positions of these events. The seqs ascend."""
        return retry_until_stopped(lambda: self._client.positions(scope, seqs), self._stop, "positions")

    def dead_letters(self, scope: str, pipeline: str) -> list[ScopeDeadLetter]:
        """Return the pipeline's open dead letters."""
        return retry_until_stopped(lambda: self._client.get_dead_letters(scope, pipeline), self._stop, "dead letters")

    def leaders(self, keys: Sequence[bytes]) -> list[FoundLeader]:
        """Return the events with these keys that are in the log, with their leaders."""
        return retry_until_stopped(lambda: self._client.leaders(keys), self._stop, "leaders")

    def links(self, seqs: npt.NDArray[np.int64]) -> list[Link]:
        """Return the leader of each of these events, in this order.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        by_seq: dict[int, Link] = {}
        for portion in _portions(ranges_of(np.sort(seqs))):
            table = retry_until_stopped(partial(self._client.get_by_seq, portion), self._stop, "log")
            names = ("seq", "key", "leader_key")
            by_seq |= {seq: Link(key, leader) for seq, key, leader in zip(*(table.column(name).to_pylist() for name in names), strict=True)}
        if len(by_seq) != len(seqs):
            raise _missing_events(len(by_seq), len(seqs))
        return [by_seq[seq] for seq in seqs.tolist()]

    def _take_prefetched(self, after: int, to: int) -> list[pa.Table]:
        """Return the prefetched events, as far as they are requested."""
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
            while rows < self._max_ahead and not _is_large(pages):
                page = self._page(after=after, limit=min(PAGE_ROWS, self._max_ahead - rows))
                if not page.num_rows:
                    break
                pages.append(page)
                rows += page.num_rows
                after = page.column("seq")[-1].as_py()
                if after >= self._head:
                    break
        except ApiUnavailable:
            pass  # it is read again when it is needed
        return pages

    def _page(self, after: int, limit: int, to: int | None = None) -> pa.Table:
        page = self._client.page(after=after, to=to, limit=limit)
        self._head = page.head
        return page.table


def _is_large(pages: Sequence[pa.Table]) -> bool:
    return bool(sum(page.nbytes for page in pages) >= MAX_BATCH_BYTES)


def _within_bytes(events: pa.Table) -> pa.Table:
    """Return the first events within the limits of a batch in bytes, at least one."""
    if events.nbytes <= MAX_ID_BYTES:
        return events
    return first_within(first_within(events, "payload", MAX_BATCH_BYTES), "id", MAX_ID_BYTES)


def first_within(events: pa.Table, column: str, max_bytes: int) -> pa.Table:
    """Return the first events whose texts in one column have up to `max_bytes` together, at least one event."""
    lengths = pc.binary_length(events.column(column)).to_numpy().astype(np.int64)
    return events.slice(0, max(1, int(np.searchsorted(np.cumsum(lengths), max_bytes, side="right"))))


def _require_all(events: pa.Table, count: int) -> pa.Table:
    """Return the events if there are `count` of them. The log retains all events that a known scope may still read."""
    if events.num_rows != count:
        raise _missing_events(events.num_rows, count)
    return events


def _missing_events(count: int, expected: int) -> PipelineError:
    return PipelineError(
        f"The log has {count} of {expected} events that the scope still needs: the database was replaced, or the scope removed.",
        hint="Bring the database back, or reset the scope with: headrace scopes reset SCOPE --from now",
    )


def _portions(ranges: Ranges) -> Iterator[Ranges]:
    """Yield ranges in portions of a limited number of events."""
    portion: Ranges = []
    remaining = MAX_REQUESTED_EVENTS
    for first, last in ranges:
        start = first
        while start <= last:
            end = min(last, start + remaining - 1)
            portion.append((start, end))
            remaining -= end - start + 1
            start = end + 1
            if not remaining:
                yield portion
                portion, remaining = [], MAX_REQUESTED_EVENTS
    if portion:
        yield portion

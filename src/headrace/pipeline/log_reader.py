"""The driver's way to the log: a batch's events in one table, with the next ones fetched while a batch is handled."""

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
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.pipelines.plans import FoundLeader, ScopeLetter
from headrace.wire.pipelines.runs import Redelivery

PAGE_ROWS: Final = 50_000
MOST_PICKED: Final = 10_000

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of events after which a batch takes no further ones."""
MAX_BATCH_EVENTS: Final = 100_000
"""Events of the log that a batch takes, and of a run of a pipeline without a batch policy, whatever the options say."""
MAX_ID_BYTES: Final = 2 * 1024 * 1024
"""Bytes of ids after which a batch takes no further events: the ids of what waits are stored with the plan."""
MAX_RUN_BYTES: Final = 1024 * 1024 * 1024
"""The most bytes of events that one run takes."""


class LogReader:
    """Reads for one scope. It repeats requests while the API is away, until `stop` is set.

    At most `ahead` events are fetched before they are requested.
    """

    def __init__(self, client: PipelineClient, stop: threading.Event, ahead: int) -> None:
        self._client = client
        self._stop = stop
        self._most_ahead = min(ahead, MAX_BATCH_EVENTS)
        self._fetcher = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self._ahead: tuple[int, Future[list[pa.Table]]] | None = None
        self._head = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._fetcher.shutdown(cancel_futures=True)

    def read(self, after: int, to: int) -> pa.Table:
        """Return the events with after < seq <= to, in order of `seq`: all, or as many as are within MAX_BATCH_BYTES and MAX_ID_BYTES.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        pages = self._fetched(after, to)
        reached = pages[-1].column("seq")[-1].as_py() if pages else after
        while reached < to and not _is_large(pages):
            page = retry_until_stopped(partial(self._page, after=reached, to=to, limit=PAGE_ROWS), self._stop, "log")
            if not page.num_rows:
                break
            pages.append(page)
            reached = page.column("seq")[-1].as_py()
        found = _within_bytes(pa.concat_tables([LOG_SCHEMA.empty_table(), *pages]))
        return _whole(found, (found.column("seq")[-1].as_py() if found.num_rows else to) - after)

    def look_ahead(self, after: int) -> None:
        """Fetch what comes after `after` in the background, where there is something."""
        if after < self._head:
            self._ahead = (after, self._fetcher.submit(self._fetch, after))

    def events(self, part: Slice) -> pa.Table:
        """Return the events of a slice as ORDERED_SCHEMA.

        Raises:
            PipelineError: The log no longer has one of them, or they have more than MAX_RUN_BYTES.
        """
        seqs = np.sort(part.seqs)
        found = self._picked(seqs)
        return part.table(found.take(pa.array(np.searchsorted(seqs, part.seqs))))

    def pick(self, seqs: Sequence[int]) -> pa.Table:
        """Return the events with these ascending seqs, in that order.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        if not len(seqs):
            return LOG_SCHEMA.empty_table()
        return self._picked(np.asarray(seqs, dtype=np.int64))

    def _picked(self, seqs: npt.NDArray[np.int64]) -> pa.Table:
        parts = [LOG_SCHEMA.empty_table()]
        size = 0
        for portion in _portions(ranges_of(seqs)):
            parts.append(retry_until_stopped(partial(self._client.pick, portion), self._stop, "log"))
            size += parts[-1].nbytes
            if size > MAX_RUN_BYTES:
                raise RunTooLarge(
                    f"The {len(seqs)} events of one run have more than {MAX_RUN_BYTES >> 20} MiB.",
                    hint="Give the pipeline a smaller Window or Debounce, and send the events again with: headrace send",
                )
        return _whole(pa.concat_tables(parts), len(seqs))

    def redeliveries(self, after: int, to: int) -> list[Redelivery]:
        """Return redeliveries with after < id <= to."""
        return retry_until_stopped(lambda: self._client.redeliveries(after=after, to=to), self._stop, "redeliveries") if after < to else []

    def positions(self, scope: str, seqs: Sequence[int]) -> list[bytes]:
        """Return the stored blocks that may have the positions of these events, by ascending seqs."""
        return retry_until_stopped(lambda: self._client.positions(scope, seqs), self._stop, "positions")

    def letters(self, scope: str, pipeline: str) -> list[ScopeLetter]:
        """Return the pipeline's dead letters that are neither settled nor discarded."""
        return retry_until_stopped(lambda: self._client.letters(scope, pipeline), self._stop, "dead letters")

    def leaders(self, keys: Sequence[bytes]) -> list[FoundLeader]:
        """Return those of the events with these keys that the log has, with their leaders."""
        return retry_until_stopped(lambda: self._client.leaders(keys), self._stop, "leaders")

    def links(self, seqs: npt.NDArray[np.int64]) -> list[Link]:
        """Return which event each of these events follows, in this order.

        Raises:
            PipelineError: The log no longer has one of them.
        """
        found: dict[int, Link] = {}
        for portion in _portions(ranges_of(np.sort(seqs))):
            table = retry_until_stopped(partial(self._client.pick, portion), self._stop, "log")
            names = ("seq", "key", "leader_key")
            found |= {seq: Link(key, leader) for seq, key, leader in zip(*(table.column(name).to_pylist() for name in names), strict=True)}
        if len(found) != len(seqs):
            raise _gone(len(found), len(seqs))
        return [found[seq] for seq in seqs.tolist()]

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
            while rows < self._most_ahead and not _is_large(pages):
                page = self._page(after=after, limit=min(PAGE_ROWS, self._most_ahead - rows))
                if not page.num_rows:
                    break
                pages.append(page)
                rows += page.num_rows
                after = page.column("seq")[-1].as_py()
                if after >= self._head:
                    break
        except ApiUnavailable:
            pass  # it is read again, and then waited for, when it is needed
        return pages

    def _page(self, after: int, limit: int, to: int | None = None) -> pa.Table:
        page = self._client.page(after=after, to=to, limit=limit)
        self._head = page.head
        return page.table


def _is_large(pages: Sequence[pa.Table]) -> bool:
    return bool(sum(page.nbytes for page in pages) >= MAX_BATCH_BYTES)


def _within_bytes(events: pa.Table) -> pa.Table:
    """Return the first events that are within the bounds of a batch in bytes, at least one."""
    if events.nbytes <= MAX_ID_BYTES:
        return events
    return first_within(first_within(events, "payload", MAX_BATCH_BYTES), "id", MAX_ID_BYTES)


def first_within(events: pa.Table, column: str, most: int) -> pa.Table:
    """Return the first events of which a column of texts has at most so many bytes, at least one event."""
    lengths = pc.binary_length(events.column(column)).to_numpy().astype(np.int64)
    return events.slice(0, max(1, int(np.searchsorted(np.cumsum(lengths), most, side="right"))))


def _whole(found: pa.Table, wanted: int) -> pa.Table:
    """Return what was found where it is all that was wanted: the log keeps what a scope that it knows may still read."""
    if found.num_rows != wanted:
        raise _gone(found.num_rows, wanted)
    return found


def _gone(found: int, wanted: int) -> PipelineError:
    return PipelineError(
        f"The log has {found} of {wanted} events that the scope still needs: the database was replaced, or the scope removed.",
        hint="Bring the database back, or reset the scope with: headrace scopes reset SCOPE --from now",
    )


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

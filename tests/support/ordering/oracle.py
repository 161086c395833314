"""Judges what a pipeline made of a feed: each event once, each after the one it follows or marked, and no mark without its reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from support.ordering.feed import NEVER, NOBODY, CausalFeed

MARKS = (None, "lost", "late", "cycle")
NONE, LOST, LATE, CYCLE = range(4)


def rows_of(folder: Path) -> pa.Table:
    """Return a table's rows, a run after the other."""
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))


def judge(feed: CausalFeed, rows: pa.Table) -> dict[str, int]:
    """Compare the rows (position, id, mark) with the feed, and return how many bear which mark."""
    number = pc.cast(pc.utf8_slice_codeunits(rows.column("id"), 1), pa.int64()).to_numpy()
    seen = np.bincount(number, minlength=feed.count)
    assert len(seen) == feed.count, "there are events that nobody sent"
    assert not (seen == 0).any(), f"missing: {_some(seen == 0)}"
    assert not (seen > 1).any(), f"more than once: {_some(seen > 1)}"
    assert (rows.column("position").to_numpy() == np.arange(1, feed.count + 1)).all(), "the positions are not 1, 2, 3, … in order"
    place = np.empty(feed.count, dtype=np.int64)
    place[number] = np.arange(feed.count)
    marks = np.empty(feed.count, dtype=np.int64)
    marks[number] = pc.index_in(rows.column("mark"), value_set=pa.array(MARKS)).to_numpy()
    _judge_marks(feed, place, marks)
    return {str(MARKS[mark]): count for mark, count in sorted(Counter(marks.tolist()).items()) if mark != NONE}


def _judge_marks(feed: CausalFeed, place: Any, marks: Any) -> None:
    own = np.arange(feed.count)
    leads = (feed.follows >= 0) & (feed.follows != own)
    leader = np.where(leads, feed.follows, own)
    before = leads & (place[leader] > place)  # it came out before the one that it follows
    in_cycle = feed.cycle != NOBODY
    broken = np.isin(feed.cycle, feed.cycle[in_cycle & (marks == LOST)])  # one of its members came too late to close it
    closed = in_cycle & ~broken
    _none(closed & (marks != CYCLE), "in a cycle, and not marked")
    _none(~closed & (marks == CYCLE), "marked as of a cycle that they are not in")
    _none(before & ~closed & (marks != LOST), "before the one that they follow, and not marked lost")
    _none((feed.follows == NEVER) & (marks != LOST), "their leader never came, and they are not marked lost")
    _none((marks == LOST) & ~before & (feed.follows != NEVER), "marked lost though the one that they follow came out before them")
    lost_by = np.zeros(feed.count, dtype=np.bool_)
    lost_by[leader[before & (marks == LOST)]] = True
    _none((marks == LATE) & ~lost_by, "marked late though nobody had given them up")
    _none(lost_by & (marks == NONE), "given up on, and not marked late when they came")


def _none(wrong: Any, what: str) -> None:
    assert not wrong.any(), f"{int(wrong.sum())} {what}: {_some(wrong)}"


def _some(wrong: Any) -> str:
    return ", ".join(f"e{number}" for number in np.flatnonzero(wrong)[:10])

"""The events of a step, and which of them follow which."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NOBODY, Flags, Rows
from headrace.pipeline.kernel.key_index import KeyIndex, keys_of
from headrace.pipeline.kernel.state import Columns


class Arrivals(NamedTuple):
    """Events in order of arrival: which follow another event, and whose leader the log had before them (`known`)."""

    rows: Columns
    follows: Flags
    known: Flags

    @classmethod
    def of_log(cls, events: pa.Table, head: int, now: int) -> Arrivals:
        """Return the events (seq, key, leader_key, leader_seq, occurred, id of LOG_SCHEMA) after `head`, which come at `now`."""
        seq = _numbers(events.column("seq"))
        if not ((fresh := seq > head).all() and (seq[1:] > seq[:-1]).all()):
            rows = np.flatnonzero(fresh)
            rows = rows[np.argsort(seq[rows], kind="stable")]
            events, seq = events.take(pa.array(rows)), seq[rows]
        key, _ = keys_of(events.column("key"))
        leader, has = keys_of(events.column("leader_key"))
        columns = Columns(
            seq,
            key,
            leader,
            _numbers(events.column("occurred").cast(pa.int64())),
            np.full(len(seq), now, dtype=np.int64),
            np.zeros(len(seq), dtype=np.bool_),
            events.column("id").combine_chunks(),
        )
        return cls(columns, has & (key != leader).any(axis=1), _numbers(events.column("leader_seq")) >= 0)

    def take(self, rows: Rows) -> Arrivals:
        """Return these rows."""
        if len(rows) == len(self.rows):
            return self
        return Arrivals(self.rows.take(rows), self.follows[rows], self.known[rows])

    def after(self, waiting: Columns) -> Arrivals:
        """Return these after events that wait, and so follow one whom the log did not have."""
        count = len(waiting)
        if not count:
            return self
        return Arrivals(
            waiting.followed_by(self.rows),
            np.concatenate([np.ones(count, dtype=np.bool_), self.follows]),
            np.concatenate([np.zeros(count, dtype=np.bool_), self.known]),
        )

    def above(self, index: KeyIndex) -> tuple[Rows, Flags]:
        """Return the row that each row follows (itself: none), and which follow one that is not here. `index` has all keys.

        An event whose leader the log had before it does not wait for a copy of that leader that came later.
        """
        above = np.arange(len(self.rows))
        followers = np.flatnonzero(self.follows)
        found = index.find(self.rows.leader[followers])
        here = found != NOBODY
        known = np.flatnonzero(here & self.known[followers])
        here[known] = self.rows.seq[found[known]] < self.rows.seq[followers[known]]
        above[followers[here]] = found[here]
        missing = np.zeros(len(self.rows), dtype=np.bool_)
        missing[followers[~here]] = True
        return above, missing


def _numbers(column: pa.ChunkedArray) -> Any:
    return column.to_numpy()

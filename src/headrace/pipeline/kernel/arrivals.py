"""The events of a step, and their leaders among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows
from headrace.pipeline.kernel.key_index import KeyIndex, keys_of
from headrace.pipeline.kernel.state import Columns


class Arrivals(NamedTuple):
    """Events in order of arrival. `follows`: those with a leader. `known`: events whose leader was in the log before them."""

    rows: Columns
    follows: Flags
    known: Flags

    @classmethod
    def of_log(cls, events: pa.Table, head: int, now: int) -> Arrivals:
        """Return the events (seq, key, leader_key, leader_seq, occurred, id of LOG_SCHEMA) after `head`, with arrival time `now`."""
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
        """Return these rows after waiting events, whose leaders were not in the log."""
        count = len(waiting)
        if not count:
            return self
        return Arrivals(
            waiting.followed_by(self.rows),
            np.concatenate([np.ones(count, dtype=np.bool_), self.follows]),
            np.concatenate([np.zeros(count, dtype=np.bool_), self.known]),
        )

    def above(self, index: KeyIndex) -> tuple[Rows, Flags]:
        """Return the row of each row's leader (itself: none), and which rows have a leader that is not here. `index` has all keys.

        An event whose leader was in the log before it does not wait for a later copy of that leader.
        """
        above = np.arange(len(self.rows))
        followers = np.flatnonzero(self.follows)
        rows = index.find(self.rows.leader[followers])
        here = rows != NO_ROW
        known = np.flatnonzero(here & self.known[followers])
        here[known] = self.rows.seq[rows[known]] < self.rows.seq[followers[known]]
        above[followers[here]] = rows[here]
        missing = np.zeros(len(self.rows), dtype=np.bool_)
        missing[followers[~here]] = True
        return above, missing


def _numbers(column: pa.ChunkedArray) -> Any:
    return column.to_numpy()

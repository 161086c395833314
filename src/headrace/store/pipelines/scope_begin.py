"""The position at which a scope begins to read the log."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection

from headrace.errors import ApiRefused
from headrace.store.db.meta import last_pruned_seq, log_end
from headrace.store.redeliveries import last_redelivery
from headrace.wire.custody.events import Cursor


class Begin(NamedTuple):
    """The start of a scope: after the event `seq` and the redelivery `last_redelivery_id`. `known` is the last redelivery at that time."""

    seq: int
    last_redelivery_id: int
    known: int

    @property
    def cursor(self) -> Cursor:
        """The cursor of a scope without a plan."""
        return Cursor(cursor=self.seq, batch=0, last_redelivery_id=self.last_redelivery_id)

    def columns(self) -> dict[str, Any]:
        """Return the columns of `scopes` that are constant until the scope is reset: a new incarnation, and its start."""
        return {"incarnation": uuid4().hex, "begin_seq": self.seq, "begin_redelivery_id": self.known, "epoch": 0}


def beginning(connection: Connection, begin: int | None) -> Begin:
    """Return the start of a scope whose first event is `begin`, or the next stored event if None.

    Raises:
        ApiRefused: The event is beyond the next one of the log.
    """
    head, known = log_end(connection), last_redelivery(connection)
    if begin is None:
        return Begin(head, known, known)
    if begin > head + 1:
        raise ApiRefused(
            f"The event log ends at event {head}: a scope cannot begin at event {begin}.",
            hint="For what comes from now on: --from now",
            status=422,
            problem="invalid",
        )
    return Begin(max(begin - 1, last_pruned_seq(connection)), 0, known)  # pruned events cannot be read

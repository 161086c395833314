"""The remaining needs of a pipeline's scope: its open runs, and the part of the log that it may still read."""

from __future__ import annotations

from sqlalchemy import case, func, select

from headrace.store.tables.pipelines import planned_runs, scopes

_mine = planned_runs.c.incarnation == scopes.c.incarnation
_first_open = select(func.min(planned_runs.c.first_seq)).where(_mine).correlate(scopes).scalar_subquery()

_open = select(func.count()).where(_mine).correlate(scopes).scalar_subquery()
_first_batch = select(func.min(planned_runs.c.batch)).where(_mine).correlate(scopes).scalar_subquery()

handled_to = case((_first_open <= scopes.c.cursor, _first_open - 1), else_=scopes.c.cursor)
"""For a row of `scopes`: each event up to this seq is read and is in no open run."""
needed_after = case((_first_open <= scopes.c.low_watermark, _first_open - 1), else_=scopes.c.low_watermark)
"""For a row of `scopes`: neither its ordering nor an open run reads an event up to this seq."""

OUTSTANDING = (
    handled_to.label("handled_to"),
    needed_after.label("needed_after"),
    _open.label("open_runs"),
    _first_batch.label("open_batch"),
)
"""For a row of `scopes`: `handled_to`, `needed_after`, the number of open runs, and the first batch with one, or
null if there is none.
"""

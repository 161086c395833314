"""What a pipeline's scope has still to do: its open runs, and what it may read of the log."""

from __future__ import annotations

from sqlalchemy import case, func, select

from headrace.store.tables.pipelines import planned_runs, scopes

_mine = planned_runs.c.incarnation == scopes.c.incarnation
_first_open = select(func.min(planned_runs.c.first_seq)).where(_mine).correlate(scopes).scalar_subquery()

_open = select(func.count()).where(_mine).correlate(scopes).scalar_subquery()
_first_batch = select(func.min(planned_runs.c.batch)).where(_mine).correlate(scopes).scalar_subquery()

handled_to = case((_first_open <= scopes.c.cursor, _first_open - 1), else_=scopes.c.cursor)
"""Of a row of `scopes`: no event up to this seq is yet to be read, or is one of an open run."""
needed_after = case((_first_open <= scopes.c.kept, _first_open - 1), else_=scopes.c.kept)
"""Of a row of `scopes`: neither its ordering nor one of its open runs reads an event up to this seq."""

OUTSTANDING = (
    handled_to.label("handled_to"),
    needed_after.label("needed_after"),
    _open.label("open_runs"),
    _first_batch.label("open_batch"),
)
"""Of a row of `scopes`: `handled_to`, `needed_after`, how many open runs it has, and the first batch that has one (null: none has)."""

"""What a pipeline's scope may still read of the log."""

from __future__ import annotations

from sqlalchemy import case, func, select

from headrace.store.pipeline_tables import planned_runs
from headrace.store.tables import scopes

_mine = planned_runs.c.incarnation == scopes.c.incarnation
_first_open = select(func.min(planned_runs.c.first_seq)).where(_mine).correlate(scopes).scalar_subquery()

needed_after = case((_first_open <= scopes.c.kept, _first_open - 1), else_=scopes.c.kept)
"""Of a row of `scopes`: neither its ordering nor one of its open runs reads an event up to this seq."""

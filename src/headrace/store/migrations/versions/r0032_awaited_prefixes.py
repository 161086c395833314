"""Runs that wait by patterns of names are found by what these patterns begin with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op

revision = "r0032"
down_revision = "r0031"
branch_labels = None
depends_on = None

_terms = sa.table("awaited_terms", sa.column("kind"), sa.column("term"), sa.column("number"))
_waits = sa.table("awaited_events", sa.column("number"), sa.column("project"), sa.column("event"))


def upgrade() -> None:
    """Put what each pattern begins with in its place."""
    globs = sa.select(_terms.c.term, _terms.c.number, _waits.c.project).where(_terms.c.kind == "glob")
    rows = op.get_bind().execute(globs.join_from(_terms, _waits, _waits.c.number == _terms.c.number)).all()
    _replace("glob", "prefix", {(_start(row.term, row.project), row.number) for row in rows})


def downgrade() -> None:
    """Put the patterns back."""
    mine = sa.select(_terms.c.number).where(_terms.c.kind == "prefix")
    rows = op.get_bind().execute(sa.select(_waits).where(_waits.c.number.in_(mine))).all()
    _replace("prefix", "glob", {(f"{row.project}/{pattern}", row.number) for row in rows for pattern in json.loads(row.event)["on"]})


def _start(term: str, project: str) -> str:
    """Return what a pattern behind its project begins with; a project's name may have wildcards in it."""
    return f"{project}/" + re.split(r"[*?\[]", term[len(project) + 1 :], maxsplit=1)[0]


def _replace(kind: str, other: str, terms: Iterable[tuple[str, int]]) -> None:
    connection = op.get_bind()
    connection.execute(sa.delete(_terms).where(_terms.c.kind == kind))
    added = [{"kind": other, "term": term, "number": number} for term, number in sorted(terms)]
    if added:
        connection.execute(sa.insert(_terms), added)

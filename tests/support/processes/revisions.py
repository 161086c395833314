"""A second revision of the schema for tests of upgrades: it moves rows, rebuilds a table and can refuse to be taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.store.db import schema

FIRST = schema.steps()[-1].revision
SECOND = "9999"
LOSES = "the owners of jobs"

SOURCE = f'''
"""Subjects of events in a table of their own, and owners of jobs."""

import os
import signal

import sqlalchemy as sa
from alembic import op

from headrace.errors import SchemaError

revision = "{SECOND}"
down_revision = "{FIRST}"
LOSES = "{LOSES}"


def upgrade():
    op.create_table("subjects", sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False), sa.Column("subject", sa.Text()))
    op.execute("INSERT INTO subjects SELECT seq, subject FROM events WHERE subject IS NOT NULL")
    op.execute("UPDATE events SET subject = NULL")
    %s
    with op.batch_alter_table("jobs", table_kwargs={{"sqlite_autoincrement": True}}) as jobs:
        jobs.add_column(sa.Column("owner", sa.Text(), nullable=False, server_default="nobody"))
        jobs.alter_column("hostname", existing_type=sa.Text(), nullable=True)


def downgrade():
    unknown = op.get_bind().execute(sa.text("SELECT count(*) FROM jobs WHERE hostname IS NULL")).scalar_one()
    if unknown:
        raise SchemaError(f"{{unknown}} jobs have no host, and an older schema needs one.", hint="Set their hosts, then downgrade.")
    with op.batch_alter_table("jobs", table_kwargs={{"sqlite_autoincrement": True}}) as jobs:
        jobs.alter_column("hostname", existing_type=sa.Text(), nullable=False)
        jobs.drop_column("owner")
    op.execute("UPDATE events SET subject = (SELECT s.subject FROM subjects s WHERE s.seq = events.seq)")
    op.drop_table("subjects")
'''


def add_revision(folder: Path, midway: str = "pass") -> Path:
    """Copy the migrations to the new `folder` with the second revision, which runs the statement `midway`; return the folder."""
    shutil.copytree(schema.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{SECOND}_second.py").write_text(SOURCE.lstrip() % midway)
    return folder

"""SQLite never gives an id of a deleted row again, as PostgreSQL never does."""

from __future__ import annotations

from alembic import op

revision = "r0029"
down_revision = "r0028"
branch_labels = None
depends_on = None

LOSES = "on SQLite, which ids were given to rows that are deleted: the highest of them may be given again"

TABLES = (
    "jobs",
    "triggers",
    "pipelines",
    "dead_letter_actions",
    "lanes",
    "custody_streams",
    "crews",
    "custody_problems",
    "ordering_scopes",
    "webhooks",
    "webhook_deliveries",
)


def upgrade() -> None:
    """Rebuild the tables whose ids SQLite gives; the next id is one more than the highest there."""
    _rebuild(autoincrement=True)


def downgrade() -> None:
    """Rebuild them as they were."""
    _rebuild(autoincrement=False)


def _rebuild(*, autoincrement: bool) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name in TABLES:
            with op.batch_alter_table(name, recreate="always", table_kwargs={"sqlite_autoincrement": autoincrement}):
                pass

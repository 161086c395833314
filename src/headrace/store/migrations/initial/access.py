"""The tables of secrets, tokens and webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headrace.store.migrations.initial.columns import bigint, boolean, serial, text


def create() -> None:
    """Create the tables and their indexes."""
    _create_secrets()
    _create_webhooks()


def _create_secrets() -> None:
    op.create_table(
        "connections",
        *text("id", "kind", "value"),
        *text("description", null=True),
        *bigint("created", "updated"),
        sa.PrimaryKeyConstraint("id", name="pk_connections"),
    )
    op.create_table(
        "variables",
        *text("key", "value"),
        *boolean("secret"),
        *text("description", null=True),
        *bigint("created", "updated"),
        sa.PrimaryKeyConstraint("key", name="pk_variables"),
    )
    op.create_table(
        "api_tokens",
        *text("id", "name", "scope"),
        *bigint("created", "expires"),
        *bigint("revoked", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
    )


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        serial("id"),
        *text("name", "url", "types", "secret", "state", "policy"),
        *text("pattern", null=True),
        *bigint("max_attempts", "timeout", "scope_id", "created", "changed", "delivered", "failed", "dead"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("name", name="uq_webhooks_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "webhook_deliveries",
        serial("id"),
        *bigint("webhook_id", "seq", "attempt"),
        *text("outcome"),
        *bigint("status", null=True),
        *text("error", null=True),
        *bigint("at", "took"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_deliveries_webhook_id_id", "webhook_deliveries", ["webhook_id", "id"])

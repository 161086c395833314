"""Webhooks: scopes of the log with an address. The SQL ordering store has their pending events.

Invariant: a webhook reads the whole log in order of `seq`, and its types filter the events after that. So a leader
counts for every webhook. Its waits use the age of the database (`store.db.ages`). An event of another type is
handled as soon as its leader is, and has no row. So is an event whose payload does not match the webhook's pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, delete, exists, func, insert, select, update

from headrace.core.matching.payloads import Payload, PayloadPattern, parse_pattern_text, pattern_text
from headrace.core.ordering.delivery import Claim, DeliveryPolicy
from headrace.core.values.moments import moment
from headrace.errors import ApiRefused
from headrace.store.db.ages import AgeClock
from headrace.store.db.database import Database
from headrace.store.db.meta import log_end
from headrace.store.ordering.log_feed import LOOKBACK, Progress, feed
from headrace.store.ordering.scopes import MAX_SLICE_ROWS, WEBHOOK_PREFIX, abandoned_scopes, give_up_scope, scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.ordering.steady_clock import DatabaseAge
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.webhooks import webhook_deliveries, webhooks
from headrace.wire.webhooks import Delivery, SetWebhook, WebhookSummary

MAX_RECORDED_DELIVERIES: Final = 1_000
"""Maximum number of recorded deliveries of a webhook."""
LEASE_ATTEMPTS: Final = 40
"""Attempts that the lease of a claim covers. The events of a chain are sent one after the other."""


@dataclass(frozen=True, slots=True)
class Hook:
    """An active webhook with the settings for its deliveries."""

    id: int
    name: str
    url: str
    types: tuple[str, ...]
    secret: str
    timeout: float
    home: SqlOrdering
    match: str | None
    """Its event pattern as JSON."""
    pattern: PayloadPattern | None = field(compare=False)

    def matches_type(self, type: str) -> bool:
        """Return whether the webhook receives events of this type."""
        return any(fnmatchcase(type, glob) for glob in self.types)

    def receives(self, event: Row[Any]) -> bool:
        """Return whether the webhook receives an event, which is a row of the log with its payload."""
        return self.matches_type(event.type) and (self.pattern is None or self.pattern.matches(Payload(event.payload)))


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one delivery attempt. `took` in µs."""

    seq: int
    number: int
    outcome: str
    status: int | None
    error: str | None
    took: int


class Webhooks:
    """The webhooks of one database."""

    def __init__(self, database: Database, ages: AgeClock) -> None:
        self._database = database
        self._steady = DatabaseAge(ages)
        self._homes: dict[int, SqlOrdering] = {}

    def set(self, name: str, request: SetWebhook) -> None:
        """Store a webhook; replace one with the same name. The position in the log is unchanged."""
        if not self._database.keyring:
            raise ApiRefused(
                "This api has no key to keep secrets under.", hint="Set HEADRACE_FERNET_KEYS.", status=409, problem="unreadable"
            )
        now = self._database.now()
        columns = {
            "url": request.url,
            "types": msgspec.json.encode(request.types).decode(),
            "pattern": None if request.match is None else pattern_text(request.match),
            "secret": self._database.keyring.encrypt(request.secret),
            "policy": request.policy,
            "max_attempts": request.max_attempts,
            "timeout": round(request.timeout * 1_000_000),
            "changed": now,
        }

        def work(connection: Connection) -> None:
            changed = connection.execute(update(webhooks).where(webhooks.c.name == name).values(**columns))
            if not changed.rowcount:
                head = 0 if request.from_beginning else log_end(connection)
                scope = scope_named(connection, WEBHOOK_PREFIX + name, LOOKBACK, head=head)
                new = {"name": name, "state": "active", "scope_id": scope, "created": now, "delivered": 0, "failed": 0, "dead": 0}
                connection.execute(insert(webhooks).values(**new, **columns))

        self._database.write(work)

    def summaries(self, name: str | None = None) -> list[WebhookSummary]:
        """Return the webhooks, or one, by name."""
        chosen = select(webhooks, ordering_scopes.c.head).join(ordering_scopes, ordering_scopes.c.id == webhooks.c.scope_id)
        with self._database.reading() as connection:
            rows = connection.execute((chosen if name is None else chosen.where(webhooks.c.name == name)).order_by(webhooks.c.name)).all()
            head = log_end(connection)
            open_ = select(ordering_events.c.scope_id, func.count()).group_by(ordering_events.c.scope_id)
            waiting = {row[0]: row[1] for row in connection.execute(open_)}
        return [_summary(row, head, waiting.get(row.scope_id, 0)) for row in rows]

    def set_state(self, name: str, state: str) -> bool:
        """Pause or resume a webhook; return whether it exists."""
        values = {"state": state, "changed": self._database.now()}
        return self._database.write(
            lambda connection: bool(connection.execute(update(webhooks).where(webhooks.c.name == name).values(**values)).rowcount)
        )

    def remove(self, name: str) -> bool:
        """Delete a webhook with its pending deliveries; return whether it existed.

        Each slice of its rows has a transaction of its own, so that other writes do not wait for all of them.
        """

        def work(connection: Connection) -> bool:
            row = connection.execute(select(webhooks.c.id, webhooks.c.scope_id).where(webhooks.c.name == name)).one_or_none()
            if row is None:
                return False
            give_up_scope(connection, row.scope_id)
            connection.execute(delete(webhook_deliveries).where(webhook_deliveries.c.webhook_id == row.id))
            connection.execute(delete(webhooks).where(webhooks.c.id == row.id))
            return True

        there = self._database.write(work)
        while there and self._database.write(lambda connection: abandoned_scopes(connection, 0, MAX_SLICE_ROWS)):
            pass
        return there

    def redrive(self, name: str) -> int | None:
        """Redrive dead events; return their number, or None if the webhook does not exist."""
        with self._database.reading() as connection:
            row = connection.execute(select(webhooks).where(webhooks.c.name == name)).one_or_none()
        return None if row is None else self._home(row).redrive(None, self._database.now())

    def deliveries(self, name: str, limit: int) -> list[Delivery]:
        """Return the last attempts, the newest first."""
        mine = select(webhooks.c.id).where(webhooks.c.name == name).scalar_subquery()
        chosen = select(webhook_deliveries).where(webhook_deliveries.c.webhook_id == mine)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.order_by(webhook_deliveries.c.id.desc()).limit(limit)).all()
        return [_delivery(row) for row in rows]

    def active(self) -> list[Hook]:
        """Return the webhooks to serve. A webhook whose secret no key decrypts is omitted until it is set again."""
        with self._database.reading() as connection:
            rows = connection.execute(select(webhooks).where(webhooks.c.state == "active").order_by(webhooks.c.id)).all()
        return [self._hook(row) for row in rows if self._database.keyring.can_decrypt(row.secret)]

    def exists(self, hook: Hook) -> bool:
        """Return whether the webhook has not been removed."""
        with self._database.reading() as connection:
            return bool(connection.execute(select(exists().where(webhooks.c.id == hook.id))).scalar_one())

    def feed(self, hook: Hook) -> Progress:
        """Feed the webhook's scope a page of the log."""
        return feed(self._database, hook.home, lambda row: hook.matches_type(row.type), hook.pattern)

    def bodies(self, hook: Hook, claims: Sequence[Claim]) -> dict[int, Row[Any]]:
        """Return the events of claims from the log, by seq. An event that the webhook does not receive any more is left out."""
        seqs = [claim.seq for claim in claims]
        with self._database.reading() as connection:
            rows = connection.execute(select(events).where(events.c.seq.in_(seqs))).all()
        return {row.seq: row for row in rows if hook.receives(row)}

    def note(self, hook: Hook, attempts: Sequence[Attempt]) -> None:
        """Record the outcome of attempts, unless the webhook was removed meanwhile."""
        now = self._database.now()
        rows = [
            {"webhook_id": hook.id, "seq": one.seq, "attempt": one.number, "outcome": one.outcome}
            | {"status": one.status, "error": one.error, "at": now, "took": one.took}
            for one in attempts
        ]
        counts = {name: sum(one.outcome == name for one in attempts) for name in ("delivered", "failed", "dead")}

        def work(connection: Connection) -> None:
            added = {name: webhooks.c[name] + count for name, count in counts.items()}
            if not connection.execute(update(webhooks).where(webhooks.c.id == hook.id).values(**added)).rowcount:
                return
            connection.execute(insert(webhook_deliveries), rows)
            mine = webhook_deliveries.c.webhook_id == hook.id
            oldest = (
                select(webhook_deliveries.c.id)
                .where(mine)
                .order_by(webhook_deliveries.c.id.desc())
                .offset(MAX_RECORDED_DELIVERIES)
                .limit(1)
            )
            connection.execute(delete(webhook_deliveries).where(mine, webhook_deliveries.c.id <= oldest.scalar_subquery()))

        if rows:
            self._database.write(work)

    def _hook(self, row: Row[Any]) -> Hook:
        secret = self._database.keyring.decrypt(row.secret, f"the secret of webhook '{row.name}'")
        types = tuple(msgspec.json.decode(row.types, type=list[str]))
        pattern = None if row.pattern is None else PayloadPattern(parse_pattern_text(row.pattern))
        return Hook(row.id, row.name, row.url, types, secret, row.timeout / 1_000_000, self._home(row), row.pattern, pattern)

    def _home(self, row: Row[Any]) -> SqlOrdering:
        home = self._homes.get(row.scope_id)
        if home is None:
            home = self._homes[row.scope_id] = SqlOrdering(self._database, row.scope_id, by_age=False, logged=True, steady=self._steady)
        dead = "release" if row.policy == "release" else "hold"
        home.policy = DeliveryPolicy(
            lease=LEASE_ATTEMPTS * row.timeout, max_attempts=row.max_attempts, dead="release" if dead == "release" else "hold"
        )
        return home


def _summary(row: Row[Any], head: int, waiting: int) -> WebhookSummary:
    fields = {name: getattr(row, name) for name in ("name", "url", "state", "policy", "max_attempts", "delivered", "failed", "dead")}
    types = msgspec.json.decode(row.types, type=list[str])
    times = {"timeout": row.timeout / 1_000_000, "changed": moment(row.changed)}
    match = None if row.pattern is None else msgspec.json.decode(row.pattern)
    return WebhookSummary(types=types, match=match, waiting=waiting, lag=head - row.head, **times, **fields)


def _delivery(row: Row[Any]) -> Delivery:
    fields = {name: getattr(row, name) for name in ("id", "seq", "attempt", "outcome", "status", "error")}
    return Delivery(at=moment(row.at), seconds=row.took / 1_000_000, **fields)

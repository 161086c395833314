"""The store: one database, and an object for each aggregate in it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, insert, select, update

from headrace.store.background import BackgroundWork
from headrace.store.control.jobs import Jobs, Liveness
from headrace.store.control.projects import Projects
from headrace.store.control.triggers import Triggers
from headrace.store.custody.backlog import Backlog
from headrace.store.custody.dead_letter_copies import DeadLetterCopies
from headrace.store.custody.receipts import Receipts
from headrace.store.custody.redrive import DeadLetters
from headrace.store.custody.seeks import StreamSeeks
from headrace.store.custody.stream_logs import StreamLogs
from headrace.store.db.ages import AgeClock
from headrace.store.db.database import Database
from headrace.store.db.errors import display_name, translate_errors
from headrace.store.db.meta import HEAD, INSTANCE, LAST_DEAD_LETTER
from headrace.store.db.outages import Outage
from headrace.store.db.schema import ensure_schema
from headrace.store.dead_letters.pipelines import PipelineDeadLetters
from headrace.store.dialects.engines import clock_of, engines, parsed
from headrace.store.keyring import Keyring
from headrace.store.log.log import Log
from headrace.store.pipelines.plans import Plans
from headrace.store.pipelines.runs import Runs
from headrace.store.pipelines.scope_leases import ScopeLeases
from headrace.store.pipelines.scopes import Scopes
from headrace.store.secrets.rotation import Rotation, reset_keyring, verify_keyring
from headrace.store.secrets.secrets import Secrets
from headrace.store.secrets.tokens import ApiTokens
from headrace.store.tables.base import meta
from headrace.store.task_runs.event_waits import EventWaits
from headrace.store.task_runs.task_runs import TaskRuns
from headrace.store.webhooks import Webhooks

T = TypeVar("T")

OPENED = "opened"


class Store:
    """One open database. Thread-safe; close it when done."""

    def __init__(self, database: Database, liveness: Liveness) -> None:
        self._database = database
        self.liveness = liveness
        self.jobs = Jobs(database, liveness)
        self.projects = Projects(database)
        self.ages = AgeClock(liveness.ticks)
        database.write(lambda connection: self.ages.mark(connection, database.now()))
        self.task_runs = TaskRuns(database, self.jobs, self.ages)
        self.triggers = Triggers(database, self.jobs, self.task_runs.commit_signal)
        self.event_waits = EventWaits(database, self.task_runs.commit_signal, self.ages)
        self.log = Log(database, self.task_runs.commit_signal)
        self.backlog = Backlog(database)
        self.receipts = Receipts(database)
        self.stream_logs = StreamLogs(database)
        self.stream_seeks = StreamSeeks(database)
        self.dead_letters = DeadLetters(database)
        self.dead_letter_copies = DeadLetterCopies(database)
        self.runs = Runs(database)
        self.pipeline_dead_letters = PipelineDeadLetters(database)
        self.scopes = Scopes(database)
        self.plans = Plans(database)
        self.scope_leases = ScopeLeases(database, liveness.ticks)
        self.secrets = Secrets(database)
        self.api_tokens = ApiTokens(database)
        self.webhooks = Webhooks(database, self.ages)
        self.rotation = Rotation(database)
        self.background = BackgroundWork()
        self.instance = self._instance()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that reads one snapshot of the database and changes nothing."""
        with self._database.reading() as connection:
            yield connection

    @property
    def keyring(self) -> Keyring:
        """Return the keys that encrypt secrets and the arguments of triggers."""
        return self._database.keyring

    @property
    def outage(self) -> Outage | None:
        """Return why writes fail at the moment, or None if they do not."""
        return self._database.outage

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit, also of other API servers. It must return immediately. Return a
        function that removes it.
        """
        return self._database.observe(observer)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run a work in the writer's transaction; return its result once it is durable."""
        return self._database.write(work)

    def prune(self, sweep: Callable[[Connection], int]) -> int:
        """Run a sweep that deletes old rows; return their number."""
        return self._database.write(sweep)

    def now(self) -> int:
        """Return the store's time in microseconds since the epoch."""
        return self._database.now()

    def close(self) -> None:
        """Finish queued writes and close every connection."""
        self._database.close()

    def _instance(self) -> int:
        """Return the number that identifies this database, so that its tokens are invalid in another database."""
        with self.reading() as connection:
            return int(connection.execute(select(meta.c.value).where(meta.c.name == INSTANCE)).scalar_one())


def _begin(connection: Connection, now: int) -> None:
    """Record the opening. This write detects a read-only database before other work depends on it."""
    known = set(connection.execute(select(meta.c.name)).scalars())
    first = {HEAD: 0, INSTANCE: secrets.randbits(62), LAST_DEAD_LETTER: 0, OPENED: now}
    rows = [{"name": name, "value": value} for name, value in first.items() if name not in known]
    if rows:
        connection.execute(insert(meta), rows)
    connection.execute(update(meta).where(meta.c.name == OPENED).values(value=now))


def _check_secrets(connection: Connection, keyring: Keyring, *, discard_secrets: bool) -> None:
    """Check that the keyring has the database's key, or discard the secrets if `discard_secrets` is set."""
    if discard_secrets:
        reset_keyring(connection)
    verify_keyring(connection, keyring)


def open_store(
    database_url: str,
    *,
    migrate: bool = False,
    liveness: Liveness | None = None,
    keyring: Keyring | None = None,
    discard_secrets: bool = False,
    clock: Callable[[], int] | None = None,
) -> Store:
    """Open the database, and create its schema if it is empty. Without a `keyring` it stores no secrets, and
    arguments unencrypted.

    With `discard_secrets`, secrets under keys that the keyring does not have may stay unreadable.

    Raises:
        SettingsError: The URL is not supported, or the keyring has none of the keys that encrypt the secrets.
        ResourceError: The file cannot be opened or written.
        SchemaError: The schema is older and `migrate` is off, or this version does not know it.
    """
    url = parsed(database_url)
    readers, writer = engines(url)
    now = clock or clock_of(writer)
    try:
        with translate_errors(url), writer.begin() as connection:
            ensure_schema(connection, display_name(url), migrate=migrate)
            _begin(connection, now())
            _check_secrets(connection, keyring or Keyring(), discard_secrets=discard_secrets)
    finally:
        readers.dispose()
        writer.dispose()
    return Store(Database(database_url, clock=clock, keyring=keyring), liveness or Liveness())

"""Connections and variables: set by users, stored encrypted, and decrypted only for a running job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Column, Connection, Row, Table, delete, insert, select, update

from headrace.core.values.moments import moment
from headrace.errors import ApiRefused
from headrace.store.control.jobs import require_running
from headrace.store.db.database import Database
from headrace.store.tables.secrets import connections, variables
from headrace.wire.secrets import (
    MASK,
    ConnectionFields,
    ConnectionSummary,
    ConnectionValue,
    SetConnection,
    SetVariable,
    VariableSummary,
    VariableValue,
)


class _Kind(NamedTuple):
    """One kind of secret: its table, the column of its key, and its name in messages."""

    table: Table
    key: Column[str]
    noun: str


_CONNECTION: Final = _Kind(connections, connections.c.id, "connection")
_VARIABLE: Final = _Kind(variables, variables.c.key, "variable")


class Secrets:
    """The connections and variables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set_connection(self, id: str, request: SetConnection) -> None:
        """Store a connection; replace one with the same id."""
        fields = ConnectionFields.model_validate(request.model_dump(exclude={"description"}))
        self._set(_CONNECTION, id, fields.model_dump_json(), {"kind": request.kind, "description": request.description})

    def set_variable(self, key: str, request: SetVariable) -> None:
        """Store a variable; replace one with the same key."""
        self._set(_VARIABLE, key, request.value, {"secret": request.secret, "description": request.description})

    def remove_connection(self, id: str) -> None:
        """Delete a connection. Raises `ApiRefused` if no connection has this id."""
        self._remove(_CONNECTION, id)

    def remove_variable(self, key: str) -> None:
        """Delete a variable. Raises `ApiRefused` if no variable has this key."""
        self._remove(_VARIABLE, key)

    def connection(self, job_id: int, id: str) -> ConnectionValue:
        """Return a connection with its secrets to a running job.

        Raises:
            Fenced: The job has ended.
            ApiRefused: No connection has this id, or no key decrypts it.
        """
        return ConnectionValue(id=id, **self._fields(self._row(_CONNECTION, id, job_id)))

    def variable(self, job_id: int, key: str) -> VariableValue:
        """Return a variable to a running job. Raises as `connection` does."""
        row = self._row(_VARIABLE, key, job_id)
        return VariableValue(key=key, value=self._decrypt(_VARIABLE, row), secret=row.secret)

    def connection_summaries(self) -> list[ConnectionSummary]:
        """Return the connections, masked, by id."""
        return [self._connection_summary(row) for row in self._rows(_CONNECTION)]

    def connection_summary(self, id: str) -> ConnectionSummary:
        """Return one connection, masked. Raises `ApiRefused` if no connection has this id."""
        return self._connection_summary(self._row(_CONNECTION, id))

    def variable_summaries(self) -> list[VariableSummary]:
        """Return the variables, masked, by key."""
        return [self._variable_summary(row) for row in self._rows(_VARIABLE)]

    def variable_summary(self, key: str) -> VariableSummary:
        """Return one variable, masked. Raises `ApiRefused` if no variable has this key."""
        return self._variable_summary(self._row(_VARIABLE, key))

    def _connection_summary(self, row: Row[Any]) -> ConnectionSummary:
        facts: dict[str, Any] = {"id": row.id, "description": row.description, "updated": moment(row.updated)}
        try:
            fields = self._fields(row)
        except ApiRefused as error:
            nothing: dict[str, Any] = dict.fromkeys(("host", "port", "login", "password", "database"))
            return ConnectionSummary(kind=row.kind, extra=[], error=f"{error} {error.hint}", **nothing, **facts)
        hidden = {"password": fields["password"] and MASK, "extra": sorted(fields["extra"])}
        return ConnectionSummary(**(fields | hidden), **facts)

    def _variable_summary(self, row: Row[Any]) -> VariableSummary:
        value, problem = MASK, None
        if not row.secret:
            try:
                value = self._decrypt(_VARIABLE, row)
            except ApiRefused as error:
                problem = f"{error} {error.hint}"
        return VariableSummary(
            key=row.key, value=value, secret=row.secret, description=row.description, updated=moment(row.updated), error=problem
        )

    def _fields(self, row: Row[Any]) -> dict[str, Any]:
        return msgspec.json.decode(self._decrypt(_CONNECTION, row), type=dict[str, Any])

    def _decrypt(self, kind: _Kind, row: Row[Any]) -> str:
        return self._database.keyring.decrypt(row.value, f"{kind.noun} '{getattr(row, kind.key.name)}'")

    def _row(self, kind: _Kind, key: str, job_id: int | None = None) -> Row[Any]:
        with self._database.reading() as connection:
            if job_id is not None:
                require_running(connection, job_id)
            row = connection.execute(select(kind.table).where(kind.key == key)).one_or_none()
        if row is None:
            raise _missing(kind, key)
        return row

    def _rows(self, kind: _Kind) -> Sequence[Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(select(kind.table).order_by(kind.key)).all()

    def _set(self, kind: _Kind, key: str, text: str, columns: dict[str, Any]) -> None:
        keyring, now = self._database.keyring, self._database.now()
        if not keyring:
            raise ApiRefused(
                "This api has no key to keep secrets under.", hint="Set HEADRACE_FERNET_KEYS.", status=409, problem="unreadable"
            )
        values = {"value": keyring.encrypt(text), "updated": now, **columns}

        def work(connection: Connection) -> None:
            if not connection.execute(update(kind.table).where(kind.key == key).values(values)).rowcount:
                connection.execute(insert(kind.table).values({kind.key.name: key, "created": now, **values}))

        self._database.write(work)

    def _remove(self, kind: _Kind, key: str) -> None:
        if not self._database.write(lambda connection: connection.execute(delete(kind.table).where(kind.key == key)).rowcount):
            raise _missing(kind, key)


def _missing(kind: _Kind, key: str) -> ApiRefused:
    group = f"headrace {kind.noun}s"
    hint = f"Set it with: {group} set {key}. To see the others: {group} list"
    return ApiRefused(f"There is no {kind.noun} '{key}'.", hint=hint, status=404, problem="not-found")

"""Connections and variables: set by users, stored encrypted, and decrypted only for a running job."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Table, delete, insert, select, update

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


class Secrets:
    """The connections and variables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set_connection(self, id: str, request: SetConnection) -> None:
        """Store a connection; replace one with the same id."""
        fields = ConnectionFields.model_validate(request.model_dump(exclude={"description"}))
        columns = {"kind": request.kind, "value": self._encrypt(fields.model_dump_json()), "description": request.description}
        self._set(connections, "id", id, columns)

    def set_variable(self, key: str, request: SetVariable) -> None:
        """Store a variable; replace one with the same key."""
        columns = {"value": self._encrypt(request.value), "secret": request.secret, "description": request.description}
        self._set(variables, "key", key, columns)

    def remove_connection(self, id: str) -> bool:
        """Delete a connection; return whether it existed."""
        return self._remove(connections, "id", id)

    def remove_variable(self, key: str) -> bool:
        """Delete a variable; return whether it existed."""
        return self._remove(variables, "key", key)

    def connection(self, job_id: int, id: str) -> ConnectionValue:
        """Return a connection with its secrets to a running job.

        Raises:
            Fenced: The job has ended.
            ApiRefused: No connection has this id, or no key decrypts it.
        """
        with self._database.reading() as connection:
            require_running(connection, job_id)
            row = connection.execute(select(connections).where(connections.c.id == id)).one_or_none()
        if row is None:
            raise _missing("connection", id)
        return ConnectionValue(id=id, **self._fields(row))

    def variable(self, job_id: int, key: str) -> VariableValue:
        """Return a variable to a running job. Raises as `connection` does."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            row = connection.execute(select(variables).where(variables.c.key == key)).one_or_none()
        if row is None:
            raise _missing("variable", key)
        return VariableValue(key=key, value=self._value(row), secret=row.secret)

    def connection_summaries(self, id: str | None = None) -> list[ConnectionSummary]:
        """Return the connections, or one of them, masked, by id."""
        chosen = select(connections).order_by(connections.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(chosen if id is None else chosen.where(connections.c.id == id)).all()
        return [self._connection_summary(row) for row in rows]

    def variable_summaries(self, key: str | None = None) -> list[VariableSummary]:
        """Return the variables, or one of them, masked, by key."""
        chosen = select(variables).order_by(variables.c.key)
        with self._database.reading() as connection:
            rows = connection.execute(chosen if key is None else chosen.where(variables.c.key == key)).all()
        return [self._variable_summary(row) for row in rows]

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
                value = self._value(row)
            except ApiRefused as error:
                problem = f"{error} {error.hint}"
        return VariableSummary(
            key=row.key, value=value, secret=row.secret, description=row.description, updated=moment(row.updated), error=problem
        )

    def _fields(self, row: Row[Any]) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.json.decode(self._database.keyring.decrypt(row.value, f"connection '{row.id}'"))
        return fields

    def _value(self, row: Row[Any]) -> str:
        return self._database.keyring.decrypt(row.value, f"variable '{row.key}'")

    def _encrypt(self, text: str) -> str:
        if not self._database.keyring:
            raise ApiRefused(
                "This api has no key to keep secrets under.", hint="Set HEADRACE_FERNET_KEYS.", status=409, problem="unreadable"
            )
        return self._database.keyring.encrypt(text)

    def _set(self, table: Table, name: str, value: str, columns: dict[str, Any]) -> None:
        now = self._database.now()

        def work(connection: Connection) -> None:
            changed = connection.execute(update(table).where(table.c[name] == value).values(updated=now, **columns))
            if not changed.rowcount:
                connection.execute(insert(table).values(created=now, updated=now, **{name: value}, **columns))

        self._database.write(work)

    def _remove(self, table: Table, name: str, value: str) -> bool:
        return self._database.write(lambda connection: bool(connection.execute(delete(table).where(table.c[name] == value)).rowcount))


def _missing(what: str, name: str) -> ApiRefused:
    return ApiRefused(f"There is no {what} '{name}'.", hint=f"Set it with: headrace {what}s set {name}", status=404, problem="not-found")

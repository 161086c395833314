"""Connections and variables: set by people, sealed where they are kept, opened only for a job that runs."""

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
    ConnectionValue,
    SetConnection,
    SetVariable,
    ShownConnection,
    ShownVariable,
    VariableValue,
)


class Secrets:
    """The connections and variables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set_connection(self, id: str, given: SetConnection) -> None:
        """Keep a connection, in place of what had its id."""
        fields = ConnectionFields.model_validate(given.model_dump(exclude={"description"}))
        kept = {"kind": given.kind, "value": self._seal(fields.model_dump_json()), "description": given.description}
        self._set(connections, "id", id, kept)

    def set_variable(self, key: str, given: SetVariable) -> None:
        """Keep a variable, in place of what had its key."""
        kept = {"value": self._seal(given.value), "secret": given.secret, "description": given.description}
        self._set(variables, "key", key, kept)

    def remove_connection(self, id: str) -> bool:
        """Forget a connection; say whether it was there."""
        return self._remove(connections, "id", id)

    def remove_variable(self, key: str) -> bool:
        """Forget a variable; say whether it was there."""
        return self._remove(variables, "key", key)

    def connection(self, job_id: int, id: str) -> ConnectionValue:
        """Return a connection in full to a job that runs.

        Raises:
            Fenced: The job has ended.
            ApiRefused: There is none, or no key opens it.
        """
        with self._database.reading() as connection:
            require_running(connection, job_id)
            row = connection.execute(select(connections).where(connections.c.id == id)).one_or_none()
        if row is None:
            raise _missing("connection", id)
        return ConnectionValue(id=id, **self._fields(row))

    def variable(self, job_id: int, key: str) -> VariableValue:
        """Return a variable to a job that runs. Raises as `connection` does."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            row = connection.execute(select(variables).where(variables.c.key == key)).one_or_none()
        if row is None:
            raise _missing("variable", key)
        return VariableValue(key=key, value=self._value(row), secret=row.secret)

    def shown_connections(self, id: str | None = None) -> list[ShownConnection]:
        """Return the connections, or one of them, as people may see them, by id."""
        chosen = select(connections).order_by(connections.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(chosen if id is None else chosen.where(connections.c.id == id)).all()
        return [self._shown_connection(row) for row in rows]

    def shown_variables(self, key: str | None = None) -> list[ShownVariable]:
        """Return the variables, or one of them, as people may see them, by key."""
        chosen = select(variables).order_by(variables.c.key)
        with self._database.reading() as connection:
            rows = connection.execute(chosen if key is None else chosen.where(variables.c.key == key)).all()
        return [self._shown_variable(row) for row in rows]

    def _shown_connection(self, row: Row[Any]) -> ShownConnection:
        facts: dict[str, Any] = {"id": row.id, "description": row.description, "updated": moment(row.updated)}
        try:
            fields = self._fields(row)
        except ApiRefused as error:
            nothing: dict[str, Any] = dict.fromkeys(("host", "port", "login", "password", "database"))
            return ShownConnection(kind=row.kind, extra=[], trouble=f"{error} {error.hint}", **nothing, **facts)
        hidden = {"password": fields["password"] and MASK, "extra": sorted(fields["extra"])}
        return ShownConnection(**(fields | hidden), **facts)

    def _shown_variable(self, row: Row[Any]) -> ShownVariable:
        value, trouble = MASK, None
        if not row.secret:
            try:
                value = self._value(row)
            except ApiRefused as error:
                trouble = f"{error} {error.hint}"
        return ShownVariable(
            key=row.key, value=value, secret=row.secret, description=row.description, updated=moment(row.updated), trouble=trouble
        )

    def _fields(self, row: Row[Any]) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.json.decode(self._database.keyring.open(row.value, f"connection '{row.id}'"))
        return fields

    def _value(self, row: Row[Any]) -> str:
        return self._database.keyring.open(row.value, f"variable '{row.key}'")

    def _seal(self, text: str) -> str:
        if not self._database.keyring:
            raise ApiRefused(
                "This api has no key to keep secrets under.", hint="Set HEADRACE_FERNET_KEYS.", status=409, problem="unreadable"
            )
        return self._database.keyring.seal(text)

    def _set(self, table: Table, name: str, value: str, kept: dict[str, Any]) -> None:
        now = self._database.now()

        def work(connection: Connection) -> None:
            changed = connection.execute(update(table).where(table.c[name] == value).values(updated=now, **kept))
            if not changed.rowcount:
                connection.execute(insert(table).values(created=now, updated=now, **{name: value}, **kept))

        self._database.write(work)

    def _remove(self, table: Table, name: str, value: str) -> bool:
        return self._database.write(lambda connection: bool(connection.execute(delete(table).where(table.c[name] == value)).rowcount))


def _missing(what: str, name: str) -> ApiRefused:
    return ApiRefused(f"There is no {what} '{name}'.", hint=f"Set it with: headrace {what}s set {name}", status=404, problem="not-found")

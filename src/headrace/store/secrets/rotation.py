"""Key rotation: encrypt all secrets again with the first key, in batches; and record the key of a database's
secrets.

A batch is one transaction and returns where the next one begins. An interrupted rotation can continue, and a
repeated batch changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Row, delete, insert, select, update

from headrace.errors import ApiRefused, SettingsError
from headrace.store.control.encrypted_arguments import display_name
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of, take_slice
from headrace.store.keyring import Keyring
from headrace.store.tables.base import meta
from headrace.store.tables.control import triggers
from headrace.store.tables.secrets import connections, variables
from headrace.store.tables.webhooks import webhooks
from headrace.wire.secrets import RotateSecrets, SecretsRotated

KEYS = "keyring"
BATCH_ROWS = 200


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of encrypted value: its key and value columns, the form of the key in `after`, and its name in messages."""

    name: str
    key: Column[Any]
    value: Column[Any]
    read: Callable[[str], Any]
    first: Any
    called: Callable[[Row[Any]], str]
    digested: bool = False


def _number(text: str) -> int:
    number = int(text)
    if not -1 <= number < 2**63:
        raise ValueError("no id of a trigger")
    return number


KINDS = (
    _Kind("trigger", triggers.c.id, triggers.c.kwargs, _number, -1, lambda row: display_name(row.project, row.name), digested=True),
    _Kind("connection", connections.c.id, connections.c.value, str, "", lambda row: f"connection '{row.id}'"),
    _Kind("variable", variables.c.key, variables.c.value, str, "", lambda row: f"variable '{row.key}'"),
    _Kind("webhook", webhooks.c.name, webhooks.c.secret, str, "", lambda row: f"the secret of webhook '{row.name}'"),
)


class Rotation:
    """Encrypt the secrets of one database again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def batch(self, request: RotateSecrets) -> SecretsRotated:
        """Encrypt the next batch with the first key. Raises `ApiRefused` if `after` is not from the response of a batch."""
        kind, after = _resume_point(request.after)
        return self._database.write(lambda connection: self._batch(connection, kind, after))

    def _batch(self, connection: Connection, kind: _Kind, after: Any) -> SecretsRotated:
        keyring = self._database.keyring
        batch = take_slice(connection, select(kind.key.table, size_of(kind.value)).where(kind.key > after).order_by(kind.key), BATCH_ROWS)
        rows = batch.rows
        unreadable: list[str] = []
        rotated = 0
        for row in rows:
            stored, what = getattr(row, kind.value.name), kind.called(row)
            if keyring.is_current(stored):
                continue
            try:
                text = keyring.decrypt(stored, what)
            except ApiRefused:
                unreadable.append(what)
                continue
            columns = {kind.value.name: keyring.encrypt(text)} | ({"kwargs_digest": keyring.digest(text, what)} if kind.digested else {})
            connection.execute(update(kind.key.table).where(kind.key == getattr(row, kind.key.name)).values(columns))
            rotated += 1
        last = f"{kind.name}:{getattr(rows[-1], kind.key.name)}" if batch.full else _next(kind)
        if last is None:
            _remember(connection, keyring)
        return SecretsRotated(after=last, rotated=rotated, current=len(rows) - rotated - len(unreadable), unreadable=unreadable)


def verify_keyring(connection: Connection, keyring: Keyring) -> None:
    """Record the key of the database's secrets, or check that the keyring has it.

    Raises:
        SettingsError: The keyring does not have it. Other API servers could not decrypt this server's secrets.
    """
    known = connection.execute(select(meta.c.value).where(meta.c.name == KEYS)).scalar_one_or_none()
    if keyring and known is None:
        _remember(connection, keyring)
    elif keyring and known not in keyring.fingerprints:
        raise SettingsError(
            "The database's secrets are kept under another key than those of this api.",
            hint="Set HEADRACE_FERNET_KEYS to the keys of the other apis; where the key is lost: headrace api --discard-secrets.",
        )


def reset_keyring(connection: Connection) -> None:
    """Accept the next keyring that opens the database. Secrets under a lost key must be set again."""
    connection.execute(delete(meta).where(meta.c.name == KEYS))


def _remember(connection: Connection, keyring: Keyring) -> None:
    reset_keyring(connection)
    if keyring:
        connection.execute(insert(meta).values(name=KEYS, value=keyring.fingerprints[0]))


def _resume_point(after: str | None) -> tuple[_Kind, Any]:
    if after is None:
        return KINDS[0], KINDS[0].first
    name, _, key = after.partition(":")
    for kind in KINDS:
        if kind.name == name:
            try:
                return kind, kind.read(key) if key else kind.first
            except ValueError:
                break
    raise ApiRefused(f"No batch ended at '{after}'.", hint="Begin again without `after`.", status=422, problem="invalid")


def _next(kind: _Kind) -> str | None:
    rest = KINDS[KINDS.index(kind) + 1 :]
    return f"{rest[0].name}:" if rest else None

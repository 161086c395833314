"""The masker of the stored secrets, for declarations that users see: a declaration may contain the value of a secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from headrace.core import connection as access
from headrace.core.values.masking import Masker
from headrace.errors import ApiRefused
from headrace.store.keyring import Keyring
from headrace.store.tables.secrets import connections, variables


def secret_masker(connection: Connection, keyring: Keyring) -> Masker:
    """Return a masker of the secret variables, and of the passwords and extra texts of connections, that the keys decrypt."""
    masker = Masker()
    masker.add(_secrets(connection, keyring))
    return masker


def masked_json(masker: Masker, value: Any) -> Any:
    """Return a JSON value with each text masked, names of fields included."""
    if isinstance(value, str):
        return masker(value)
    if isinstance(value, list):
        return [masked_json(masker, part) for part in value]
    if isinstance(value, dict):
        return {masker(name): masked_json(masker, part) for name, part in value.items()}
    return value


def _secrets(connection: Connection, keyring: Keyring) -> Iterator[str]:
    for row in connection.execute(select(variables.c.key, variables.c.value).where(variables.c.secret)):
        if (text := _decrypted(keyring, row.value, row.key)) is not None:
            yield text
    for row in connection.execute(select(connections.c.id, connections.c.value)):
        if (text := _decrypted(keyring, row.value, row.id)) is not None:
            fields = msgspec.json.decode(text, type=dict[str, Any])
            yield from access.Connection(row.id, **fields).secrets()


def _decrypted(keyring: Keyring, encrypted: str, name: str) -> str | None:
    try:
        return keyring.decrypt(encrypted, name)
    except ApiRefused:
        return None

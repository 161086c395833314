"""Stored keyword arguments of triggers: encrypted, with a digest that shows whether a declaration changed them."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from headrace.errors import ApiRefused
from headrace.store.keyring import Keyring


def written(kwargs: dict[str, Any]) -> str:
    """Return keyword arguments as text. Equal arguments yield equal text."""
    return msgspec.json.encode(kwargs, order="sorted").decode()


def encrypt(keyring: Keyring, kwargs: dict[str, Any], what: str) -> dict[str, str | None]:
    """Return the columns that store the keyword arguments of `what`, the name of the trigger."""
    text = written(kwargs)
    return {"kwargs": keyring.encrypt(text), "kwargs_digest": keyring.digest(text, what)}


def unchanged(keyring: Keyring, row: Row[Any], kwargs: dict[str, Any], what: str) -> bool:
    """Return whether the row stores these keyword arguments, as far as the keys of this API server can verify."""
    text = written(kwargs)
    return row.kwargs == text if not keyring else keyring.same(row.kwargs_digest, text, what)


def decrypt(keyring: Keyring, stored: str, what: str) -> tuple[str, str | None]:
    """Return the keyword arguments as JSON, or the reason why no key decrypts them.

    The reason is returned, not raised, because one such trigger must not stop the others.
    """
    try:
        return keyring.decrypt(stored, what), None
    except ApiRefused as error:
        return "{}", f"{error} {error.hint}"


def display_name(project: str, name: str) -> str:
    """Return the name of a trigger's keyword arguments in digests and errors."""
    return f"the arguments of trigger '{name}' of project '{project}'"

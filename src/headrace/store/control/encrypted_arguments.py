"""The keyword arguments of triggers as they are kept: sealed, with a digest that tells whether a declaration changed them."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row

from headrace.errors import ApiRefused
from headrace.store.keyring import Keyring


def written(kwargs: dict[str, Any]) -> str:
    """Return keyword arguments as text, the same for equal ones."""
    return msgspec.json.encode(kwargs, order="sorted").decode()


def encrypt(keyring: Keyring, kwargs: dict[str, Any], what: str) -> dict[str, str | None]:
    """Return the columns that keep the keyword arguments of `what`, which names the trigger."""
    text = written(kwargs)
    return {"kwargs": keyring.seal(text), "kwargs_digest": keyring.digest(text, what)}


def unchanged(keyring: Keyring, row: Row[Any], kwargs: dict[str, Any], what: str) -> bool:
    """Whether the row keeps these keyword arguments, as far as this api's keys can tell."""
    text = written(kwargs)
    return row.kwargs == text if not keyring else keyring.same(row.kwargs_digest, text, what)


def decrypt(keyring: Keyring, kept: str, what: str) -> tuple[str, str | None]:
    """Return the keyword arguments as JSON, or why no key opens them: one such trigger must not stop its neighbours."""
    try:
        return keyring.open(kept, what), None
    except ApiRefused as error:
        return "{}", f"{error} {error.hint}"


def named(project: str, name: str) -> str:
    """Return what the keyword arguments of a trigger are called, in digests and errors."""
    return f"the arguments of trigger '{name}' of project '{project}'"

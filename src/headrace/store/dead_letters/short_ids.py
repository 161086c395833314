"""Short ids, which users can copy and type, and the full ids that they abbreviate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from sqlalchemy import ColumnElement, Connection, select

from headrace.errors import ApiRefused

DIGITS: Final = 10
_SHORT = re.compile(rf"[0-9a-f]{{4,{DIGITS}}}")


def short_id(id: str) -> str:
    """Return ten hexadecimal digits for an id. The same id always has the same short id."""
    return blake2b(id.encode(errors="surrogatepass"), digest_size=DIGITS // 2).hexdigest()


def full_ids(connection: Connection, column: ColumnElement[str], ids: Sequence[str]) -> list[str]:
    """Return the full ids for full or short ids. An unknown id is returned unchanged.

    Raises:
        ApiRefused: An id is empty, or is the prefix of several short ids.
    """
    if any(not id.strip() for id in ids):
        raise ApiRefused("An id is empty.", hint="Name dead letters by their ids.", status=422, problem="invalid")
    known = set(connection.execute(select(column).where(column.in_(ids))).scalars())
    prefixes = {id for id in ids if id not in known and _SHORT.fullmatch(id)}
    matches: dict[str, list[str]] = {short: [] for short in prefixes}
    if prefixes:
        for id in connection.execute(select(column)).scalars():
            short = short_id(id)
            for begin in {short[:length] for length in range(4, DIGITS + 1)} & prefixes:
                matches[begin].append(id)
    return [_one(id, matches.get(id, [])) for id in ids]


def _one(id: str, matches: Sequence[str]) -> str:
    if len(matches) > 1:
        some = ", ".join(short_id(id) for id in matches[:3])
        raise ApiRefused(
            f"The id {id} is ambiguous: {len(matches)} dead letters begin with it.",
            hint=f"Give more of the id: {some}.",
            status=409,
            problem="ambiguous",
        )
    return matches[0] if matches else id

"""Shards: the streams in which one upstream is read in parts, and the names of their streams and triggers.

Shard 2 of 4 of the stream `orders` is the stream `orders#2-of-4`. Declared names of triggers have no `#`, so that the name of a trigger
shows its shard. A stream key of a user may end like that of a shard by chance. What compares streams by name only waits for the end of a
stream, or searches positions in more streams.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_SHARDS: Final = 256
SEPARATOR: Final = "#"
SHARD_PATTERN: Final = "%#%-of-%"
"""A pattern of SQL that each name of a shard matches."""
_SHARD: Final = re.compile(r"(?s)(.+)#(0|[1-9]\d{0,2})-of-([1-9]\d{0,2})")


class Shard(NamedTuple):
    """One shard: its number, from 0, and how many there are."""

    number: int
    total: int


WHOLE: Final = Shard(0, 1)
"""The only shard of an upstream that is not divided."""


def shard_name(base: str, shard: Shard) -> str:
    """Return the name of a shard of a stream or trigger. The only shard has the name itself."""
    return base if shard.total == 1 else f"{base}{SEPARATOR}{shard.number}-of-{shard.total}"


def split_shard_name(name: str) -> tuple[str, Shard]:
    """Return the name of the whole stream or trigger, and the shard. A name without a shard is that of `WHOLE`."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return name, WHOLE
    shard = Shard(int(match[2]), int(match[3]))
    return (match[1], shard) if shard.number < shard.total and shard.total > 1 else (name, WHOLE)


def whole_name(name: str) -> str:
    """Return the declared name of a trigger or stream, without its shard."""
    return split_shard_name(name)[0] if SEPARATOR in name else name


def overlap(first: str, second: str) -> bool:
    """Return whether two streams divide the same upstream into different numbers of shards, so that both may read the same lane."""
    first_base, first_shard = split_shard_name(first)
    second_base, second_shard = split_shard_name(second)
    return first_base == second_base and first_shard.total != second_shard.total

"""Log sequence numbers (LSNs) of PostgreSQL, and the positions and lanes of raw events that are made of them. Pure.

A position has 63 bits: 39 of the LSN of the transaction's commit, and 24 of the index of the change in its transaction.

- The LSN of the commit orders transactions as the slot delivers them. LSNs of changes do not, because open transactions interleave.
- Commit records are at least 40 bytes long, so the LSN in units of 32 bytes is still unique.
- 39 bits of such units are 16 TiB of write-ahead log. The number of the 16 TiB, the *era*, is in the name of the lane.
- The index counts all changes of the transaction, also changes that the upstream does not read. So it stays the same if the declared tables
  change. A transaction with more than 2^24 changes continues in lanes of its own.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

LSN_UNIT_BITS: Final = 5
ERA_BITS: Final = 44
INDEX_BITS: Final = 24
MAX_LANE_CHARS: Final = 150
MARK_DIGITS: Final = 6


def parse_lsn(text: str) -> int:
    """Return the number of an LSN such as `16/B374D848`. Raises `ValueError`."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def position_of(commit_lsn: int, index: int) -> int:
    """Return the position of the change `index` of the transaction whose commit record begins at `commit_lsn`."""
    unit = (commit_lsn & ((1 << ERA_BITS) - 1)) >> LSN_UNIT_BITS
    return unit << INDEX_BITS | index & ((1 << INDEX_BITS) - 1)


def lane_suffix(birthmark: str, commit_lsn: int, index: int) -> str:
    """Return what the names of lanes end with for a change: the birthmark, and the era and part unless these are 0."""
    era, part = commit_lsn >> ERA_BITS, index >> INDEX_BITS
    return f"@{birthmark}" + (f".{era}" if era else "") + (f"+{part}" if part else "")


def lane_text(value: str | None) -> str:
    """Return the text of a lane for the value of a lane column. A long value is cut, and ends with its checksum."""
    if value is None:
        return "null"
    if len(value) <= MAX_LANE_CHARS:
        return value
    return f"{value[:MAX_LANE_CHARS]}…{sha256(value.encode()).hexdigest()[:12]}"


def birthmark_of(system: str, timeline: int, database: str) -> str:
    """Return the digits that distinguish a database from copies of it whose LSNs mean other changes.

    A server that was restored to an earlier time, or promoted, has another timeline.
    """
    return sha256(f"{system}/{timeline}/{database}".encode()).hexdigest()[:MARK_DIGITS]

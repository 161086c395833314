"""Columns of a history during a replay."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_OURS: Final = "headrace:"
"""Prefix of the replay's own columns."""

KEY: Final = f"{_OURS}key"
LEADER: Final = f"{_OURS}leader"
OCCURRED: Final = f"{_OURS}occurred"
ORDERING_KEY: Final = f"{_OURS}ordering_key"
SLIM: Final = (KEY, LEADER, OCCURRED)
"""The columns that the ordering reads: ids of the event and of its leader (text or bytes, or null), and µs since 1970."""

EFF: Final = f"{_OURS}eff"
DEPTH: Final = f"{_OURS}depth"
GID: Final = f"{_OURS}gid"
MARK_CODE: Final = f"{_OURS}mark"
MARK: Final = "mark"
POSITION: Final = "position"

SHARD_BITS: Final = 40
"""Bits of the row number within a partition. A global row id is the partition's number followed by these bits."""


def own(schema: pa.Schema) -> list[str]:
    """Return the names of the history's own columns."""
    return [name for name in schema.names if not name.startswith(_OURS)]


def ordered_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the ordered history."""
    fields = [schema.field(name) for name in own(schema) if name not in {POSITION, MARK}]
    return pa.schema([pa.field(POSITION, pa.int64(), nullable=False), pa.field(MARK, pa.string()), *fields])

"""What a history looks like on its way through a replay."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_OURS: Final = "headrace:"
"""What the names of our own columns begin with."""

KEY: Final = f"{_OURS}key"
LEADER: Final = f"{_OURS}leader"
OCCURRED: Final = f"{_OURS}occurred"
ORDERING_KEY: Final = f"{_OURS}ordering_key"
SLIM: Final = (KEY, LEADER, OCCURRED)
"""The columns that the ordering looks at: what names the event and its leader (texts or bytes; null: none), and µs since 1970."""

EFF: Final = f"{_OURS}eff"
DEPTH: Final = f"{_OURS}depth"
GID: Final = f"{_OURS}gid"
MARK_CODE: Final = f"{_OURS}mark"
MARK: Final = "mark"
POSITION: Final = "position"

SHARD_BITS: Final = 40
"""The number of a row in a whole history: that of its partition, then so many bits of its row there."""


def own(schema: pa.Schema) -> list[str]:
    """Return the names of the columns that are the history's own."""
    return [name for name in schema.names if not name.startswith(_OURS)]


def ordered_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the ordered history."""
    fields = [schema.field(name) for name in own(schema) if name not in {POSITION, MARK}]
    return pa.schema([pa.field(POSITION, pa.int64(), nullable=False), pa.field(MARK, pa.string()), *fields])

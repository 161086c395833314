"""What a history looks like on its way through a replay."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

KEY: Final = ("_key_1", "_key_2")
LEADER: Final = ("_leader_1", "_leader_2")
OCCURRED: Final = "_occurred"
ID: Final = "_id"
SLIM: Final = (*KEY, *LEADER, OCCURRED, ID)
"""The columns that the ordering looks at: two 64-bit halves of the event's key and of its leader's (null: none), µs, the id."""

EFF: Final = "_eff"
DEPTH: Final = "_depth"
MARK: Final = "mark"
POSITION: Final = "position"
GID: Final = "_gid"
PLACED: Final = (EFF, DEPTH, OCCURRED, ID, GID)
"""What a row is placed by once its tree is known."""

SHARD_BITS: Final = 40
"""The number of a row in a whole history: that of its partition, then so many bits of its row there."""


def own(schema: pa.Schema) -> list[str]:
    """Return the names of the columns that are the history's own."""
    return [name for name in schema.names if not name.startswith("_")]


def ordered_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the ordered history."""
    fields = [schema.field(name) for name in own(schema) if name not in {POSITION, MARK}]
    return pa.schema([pa.field(POSITION, pa.int64(), nullable=False), pa.field(MARK, pa.string()), *fields])

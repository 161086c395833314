"""Runs of Arrow rows as bytes."""

from __future__ import annotations

import pyarrow as pa

# JSON shrinks to a fraction in no time; the JVM, the state store and the disk then hold and move that much less.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(table: pa.Table) -> bytes:
    """Return the table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(block: bytes) -> pa.Table:
    """Return the table that `pack` packed; its buffers are the block's."""
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all()

"""Packed events of a scope: seqs, positions and marks as bytes. The driver packs the slices of its runs and its blocks of positions."""

from __future__ import annotations

from itertools import accumulate
from struct import unpack
from typing import Final, NamedTuple, Self

import msgspec
import pyarrow as pa

from headrace.core.ordering.causal_order import CYCLE, LATE, LOST
from headrace.wire.pipelines.scopes import Mark

MARKS: Final[tuple[Mark | None, ...]] = (None, LOST, LATE, CYCLE)
"""The marks, by code."""

_MAGIC: Final = b"HRS1"
_CODEC: Final = "zstd"
_STRUCT_CODES: Final = {"1": "b", "2": "h", "4": "i", "8": "q"}


class EventPosition(NamedTuple):
    """The position of an event in a scope, and its mark."""

    position: int
    mark: Mark | None


class PackedEvents(msgspec.Struct, array_like=True):
    """Events in columns: each column as a NumPy type and the differences between neighbours. `marks` has the codes of MARKS."""

    count: int
    seqs: tuple[str, bytes]
    positions: tuple[str, bytes]
    marks: bytes
    triggers: dict[int, list[str]]

    def encode(self) -> bytes:
        """Return the events as bytes: usually two or three for each event."""
        plain = msgspec.msgpack.encode(self)
        compressed: bytes = pa.compress(plain, codec=_CODEC, asbytes=True)
        return b"".join([_MAGIC, len(plain).to_bytes(8, "little"), compressed])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the events of these bytes. Raises ValueError for anything else."""
        if data[:4] != _MAGIC:
            raise ValueError("these bytes are not a slice of this version")
        plain = pa.decompress(data[12:], decompressed_size=int.from_bytes(data[4:12], "little"), codec=_CODEC, asbytes=True)
        return msgspec.msgpack.decode(plain, type=cls)

    def find(self, seq: int) -> EventPosition | None:
        """Return the position and the mark of one event, or None if it is not one of these. Without NumPy, which the API does not need."""
        seqs = _sums(self.seqs)
        if seq not in seqs:
            return None
        row = seqs.index(seq)
        return EventPosition(_sums(self.positions)[row], MARKS[self.marks[row]])


def _sums(packed: tuple[str, bytes]) -> list[int]:
    kind, data = packed
    width = kind[-1]
    return list(accumulate(unpack(f"<{len(data) // int(width)}{_STRUCT_CODES[width]}", data)))

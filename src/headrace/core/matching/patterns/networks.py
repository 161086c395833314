"""Entries of an index by the IP network that an address belongs to."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.buckets import Bucket, with_entry, without_entry
from headrace.core.matching.patterns.operators import Network, address_bits, parse_address

_T = TypeVar("_T")


class NetworkTable(Generic[_T]):
    """Entries by IP network. `find` looks up the beginning of the address once for each different length of the networks."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, Bucket[_T]]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, operator: Network, entry: _T) -> None:
        """Add an entry."""
        table = self._tables.setdefault((operator.family, operator.bits), {})
        table[operator.prefix] = with_entry(table.get(operator.prefix, ()), entry)

    def remove(self, operator: Network, entry: _T) -> None:
        """Remove an entry that was added."""
        table = self._tables[operator.family, operator.bits]
        table[operator.prefix] = without_entry(table[operator.prefix], entry)
        if not table[operator.prefix]:
            del table[operator.prefix]
        if not table:
            del self._tables[operator.family, operator.bits]

    def crowd(self, operator: Network) -> int:
        """Return the number of entries of the same network."""
        return len(self._tables.get((operator.family, operator.bits), {}).get(operator.prefix, ()))

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries to whose network an address belongs."""
        del arrays
        parsed = parse_address(value)
        if parsed is None:
            return
        family, address = parsed
        for (its_family, bits), table in self._tables.items():
            if its_family == family and (bucket := table.get(address >> (address_bits(family) - bits))) is not None:
                buckets.append(bucket)

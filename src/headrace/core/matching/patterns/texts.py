"""Entries of an index by the text, the beginning, the end, or the parts of a text that they need."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from typing import Any, Final, Generic, TypeVar

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.buckets import Bucket, with_entry, without_entry
from headrace.core.matching.patterns.operators import Equals, Prefix, Suffix, Wildcard

_T = TypeVar("_T")
_GRAM_LENGTHS: Final = (4, 2, 1)
"""Possible lengths of the part of a wildcard by which it is looked up, if it has neither a beginning nor an end that few others have."""
_LONG_GRAM: Final = 7
"""The length of a part if its shorter parts have `_LONG_GRAM_CROWD` wildcards already: a text has many parts, each of which is tested."""
_LONG_GRAM_CROWD: Final = 2
_FREE_LENGTHS: Final = 16
"""Different lengths of affixes from which lookups are counted as repeated work."""
_CROWDED: Final = 8
"""Wildcards with the same beginning or end that are tested. A lookup by a part costs less than to test more of them."""


class AffixTable(Generic[_T]):
    """Entries by a prefix or a suffix. `find` looks up one slice of the text for each different length of the affixes."""

    def __init__(self, *, suffixes: bool, ignore_case: bool = False) -> None:
        self._suffixes = suffixes
        self._ignore_case = ignore_case
        self._tables: dict[int, dict[str, Bucket[_T]]] = {}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, operator: Prefix | Suffix, entry: _T) -> None:
        """Add an entry."""
        text = operator.text
        table = self._tables.get(len(text))
        if table is None:
            table = self._tables[len(text)] = {}
            insort(self._lengths, len(text))
        table[text] = with_entry(table.get(text, ()), entry)

    def remove(self, operator: Prefix | Suffix, entry: _T) -> None:
        """Remove an entry that was added."""
        text = operator.text
        table = self._tables[len(text)]
        table[text] = without_entry(table[text], entry)
        if not table[text]:
            del table[text]
        if not table:
            del self._tables[len(text)]
            self._lengths.remove(len(text))

    def bucket(self, operator: Prefix | Suffix) -> Bucket[_T]:
        """Return the entries with the same affix."""
        return self._tables.get(len(operator.text), {}).get(operator.text, ())

    def crowd(self, operator: Prefix | Suffix) -> int:
        """Return the number of entries with the same affix."""
        return len(self.bucket(operator))

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose affix a text has."""
        if type(value) is not str:
            return
        if self._ignore_case:
            arrays.count_text(value)
            value = value.casefold()
        size = len(value)
        if len(self._lengths) > _FREE_LENGTHS:
            arrays.count(min(size, len(self._lengths)))
        for length in self._lengths:
            if length > size:
                break
            bucket = self._tables[length].get(value[size - length :] if self._suffixes else value[:length])
            if bucket is not None:
                buckets.append(bucket)


class EqualsTable(Generic[_T]):
    """Entries by a text in any case."""

    def __init__(self) -> None:
        self._table: dict[str, Bucket[_T]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def add(self, operator: Equals, entry: _T) -> None:
        """Add an entry."""
        self._table[operator.folded] = with_entry(self._table.get(operator.folded, ()), entry)

    def remove(self, operator: Equals, entry: _T) -> None:
        """Remove an entry that was added."""
        self._table[operator.folded] = without_entry(self._table[operator.folded], entry)
        if not self._table[operator.folded]:
            del self._table[operator.folded]

    def crowd(self, operator: Equals) -> int:
        """Return the number of entries with the same text."""
        return len(self._table.get(operator.folded, ()))

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries that a text equals."""
        if type(value) is str:
            arrays.count_text(value)
            bucket = self._table.get(value.casefold())
            if bucket is not None:
                buckets.append(bucket)


class GramTable(Generic[_T]):
    """Entries by a part of few characters, anywhere in a text. `find` costs the length of the text for each length of the parts."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[str, Bucket[_T]]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, text: str, entry: _T) -> None:
        """Add an entry under a part."""
        table = self._tables.setdefault(len(text), {})
        table[text] = with_entry(table.get(text, ()), entry)

    def remove(self, text: str, entry: _T) -> None:
        """Remove an entry that was added under this part."""
        table = self._tables[len(text)]
        table[text] = without_entry(table[text], entry)
        if not table[text]:
            del table[text]
        if not table:
            del self._tables[len(text)]

    def crowd(self, text: str) -> int:
        """Return the number of entries under the same part."""
        return len(self._tables.get(len(text), {}).get(text, ()))

    def find(self, text: str, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose part a text has."""
        for length, table in self._tables.items():
            arrays.count_text(text)
            grams = {text[at : at + length] for at in range(len(text) - length + 1)}
            buckets += [table[gram] for gram in table.keys() & grams]


class WildcardTable(Generic[_T]):
    """Entries by wildcard. Each wildcard is looked up by its beginning, its end or a part of it, then tested.

    A lookup by a part costs more. It is used if too many wildcards have the same beginning or end.
    """

    def __init__(self) -> None:
        self._entries: dict[Wildcard, Bucket[_T]] = {}
        self._prefixes: AffixTable[Wildcard] = AffixTable(suffixes=False)
        self._suffixes: AffixTable[Wildcard] = AffixTable(suffixes=True)
        self._grams: GramTable[Wildcard] = GramTable()
        self._anchors: dict[Wildcard, Prefix | Suffix | str] = {}
        self._shared: Counter[Prefix | Suffix] = Counter()
        """The number of wildcards that have a beginning or end, however they are looked up."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, operator: Wildcard, entry: _T) -> None:
        """Add an entry."""
        if operator not in self._entries:
            affixes = _affixes(operator)
            self._shared.update(affixes)
            self._anchor(operator)
            for affix in affixes:
                if self._shared[affix] == _CROWDED + 1:
                    for crowded in tuple(self._table(affix).bucket(affix)):
                        self._drop_anchor(crowded)
                        self._anchor(crowded)
        self._entries[operator] = with_entry(self._entries.get(operator, ()), entry)

    def remove(self, operator: Wildcard, entry: _T) -> None:
        """Remove an entry that was added."""
        self._entries[operator] = without_entry(self._entries[operator], entry)
        if not self._entries[operator]:
            del self._entries[operator]
            self._drop_anchor(operator)
            self._shared.subtract(_affixes(operator))
            self._shared += Counter()  # without zeros

    def crowd(self, operator: Wildcard) -> int:
        """Return the number of wildcards that are tested together with this one, or of its entries."""
        gram = self._choose_gram(operator)
        tested = min(map(self._crowd, _affixes(operator))) if gram is None else self._crowd(gram)
        return max(tested, len(self._entries.get(operator, ())))

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose wildcard a text matches."""
        if type(value) is not str:
            return
        possible: list[Bucket[Wildcard]] = []
        for table in (self._prefixes, self._suffixes, self._grams):
            if table:
                table.find(value, arrays, possible)
        for operators in possible:
            arrays.count(len(operators) - 1)
            for operator in operators:
                arrays.count_text(value)
                if operator.matches(value):
                    buckets.append(self._entries[operator])

    def _anchor(self, operator: Wildcard) -> None:
        anchor = self._anchors[operator] = self._choose_anchor(operator)
        self._table(anchor).add(anchor, operator)

    def _drop_anchor(self, operator: Wildcard) -> None:
        anchor = self._anchors.pop(operator)
        self._table(anchor).remove(anchor, operator)

    def _table(self, anchor: Prefix | Suffix | str) -> Any:
        if isinstance(anchor, str):
            return self._grams
        return self._prefixes if isinstance(anchor, Prefix) else self._suffixes

    def _crowd(self, anchor: Prefix | Suffix | str) -> int:
        crowd: int = self._table(anchor).crowd(anchor)
        return crowd

    def _choose_anchor(self, operator: Wildcard) -> Prefix | Suffix | str:
        """Return the beginning or end that the fewest wildcards have; if too many have it, a part that fewer have."""
        affix = min(_affixes(operator), key=self._shared.__getitem__)
        gram = self._choose_gram(operator)
        if gram is None or (affix.text and self._shared[affix] <= max(_CROWDED, self._crowd(gram))):
            return affix
        return gram

    def _choose_gram(self, operator: Wildcard) -> str | None:
        """Return the part of a few characters that the fewest wildcards have, or None if there is no part."""
        part = max(operator.parts[1:-1], key=len, default="")
        if not part:
            return None
        gram = self._least_crowded(part, next(length for length in _GRAM_LENGTHS if length <= len(part)))
        if len(part) >= _LONG_GRAM and self._grams.crowd(gram) >= _LONG_GRAM_CROWD:
            return self._least_crowded(part, _LONG_GRAM)
        return gram

    def _least_crowded(self, part: str, length: int) -> str:
        return min((part[at : at + length] for at in range(len(part) - length + 1)), key=self._grams.crowd)


def _affixes(operator: Wildcard) -> list[Prefix | Suffix]:
    """Return the beginning and the end of a wildcard that are not empty, or else the empty beginning."""
    affixes: list[Prefix | Suffix] = [Prefix(operator.parts[0]), Suffix(operator.parts[-1])]
    return [affix for affix in affixes if affix.text] or [Prefix("")]

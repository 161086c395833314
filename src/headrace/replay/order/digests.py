"""Digests of text columns: 16 bytes each, computed word by word for all rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.key_index import Keys

_WORD: Final = 8
# Constants of two 64-bit finalizers, MurmurHash3's and SplitMix's. Each is a bijection.
_FACTORS: Final = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS: Final = ((np.uint64(33), np.uint64(33), np.uint64(33)), (np.uint64(30), np.uint64(27), np.uint64(31)))


def digests(texts: pa.Array) -> Keys:
    """Return a digest of each text (or binary value), the same on every host. The digest of null is that of the empty text.

    Not collision-resistant against an attacker who chooses ids, like every fast hash.
    """
    starts, lengths, data = _layout(texts)
    # One more word, so that the last text can also be read in words.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words: npt.NDArray[np.uint64] = np.ndarray((len(padded) - _WORD + 1,), dtype="<u8", buffer=padded, strides=(1,))
    states: list[Any] = [(lengths + 1).astype(np.uint64) * factor for factor, _ in _FACTORS]
    rows = np.arange(len(starts))
    at, left = starts, lengths
    while len(rows):
        word = _cut(words[at], left)
        for half, state in enumerate(states):
            if len(rows) == len(starts):
                states[half] = _stirred(state ^ word, half)
            else:
                state[rows] = _stirred(state[rows] ^ word, half)
        more = np.flatnonzero(left > _WORD)
        rows, at, left = rows[more], at[more] + _WORD, left[more] - _WORD
    return np.stack(states, axis=1)


def _stirred(state: Any, half: int) -> Any:
    (first, second), (before, between, after) = _FACTORS[half], _SHIFTS[half]
    state ^= state >> before
    state *= first
    state ^= state >> between
    state *= second
    state ^= state >> after
    return state


def _layout(texts: pa.Array) -> tuple[Rows, Rows, npt.NDArray[np.uint8]]:
    """Return the start and the length of each text, and the bytes of all."""
    texts = texts.cast(pa.large_binary()).fill_null(b"")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if data is None or not len(texts):
        return np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64), np.empty(0, np.uint8)
    return ends[:-1] - ends[0], np.diff(ends), np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]


def _cut(words: npt.NDArray[np.uint64], left: Rows) -> npt.NDArray[np.uint64]:
    """Clear the bytes of the next text in words of which only `left` bytes belong to this one."""
    if len(left) and int(left.min()) >= _WORD:
        return words
    spare = np.clip(_WORD - left, 0, _WORD - 1).astype(np.uint64)
    cut = words << (spare * np.uint64(8))
    cut[left <= 0] = 0
    return cut

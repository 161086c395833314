"""The secrets that this process has fetched, masked wherever it writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.core.values.masking import MASK, mask

DEEPEST: Final = 8

__all__ = ["mask", "mask_event"]


def mask_event(logger: Any, name: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log line's fields without secrets. A structlog processor, to place after the formatter of exceptions."""
    del logger, name
    return {key: _masked(value, DEEPEST) for key, value in event.items()}


def _masked(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return MASK
    if isinstance(value, Mapping):
        return {_masked(key, depth - 1): _masked(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(part, depth - 1) for part in value]
    return mask(str(value))

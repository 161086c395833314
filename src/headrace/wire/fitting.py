"""Cuts a status to the size of a frame: long texts first, then the ends of its longest lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from headrace.wire.status import Status

MAX_FRAME_BYTES: Final = 64 * 1024
MAX_TEXT_CHARS: Final = 400
MAX_ITEMS: Final = 20
"""Entries of a list within an entry of a list, such as the triggers of an event."""

_LISTS: Final = ("jobs", "triggers", "streams", "backlogs", "scopes", "pipelines", "runs", "task_runs", "recent", "alerts")


def fitted(status: Status) -> Status:
    """Return the status with its texts cut, and its lists too where it would take more than MAX_FRAME_BYTES as JSON."""
    lists = {name: [_clipped(item) for item in getattr(status, name)] for name in _LISTS}
    rest = len(status.model_copy(update={name: [] for name in _LISTS}).model_dump_json().encode())
    sizes = {name: [len(item.model_dump_json().encode()) + 1 for item in items] for name, items in lists.items()}
    while rest + sum(map(sum, sizes.values())) > MAX_FRAME_BYTES and any(sizes.values()):
        longest = max(sizes, key=lambda name: sum(sizes[name]))
        keep = len(sizes[longest]) // 2
        del sizes[longest][keep:], lists[longest][keep:]
    return status.model_copy(update=lists)


def _clipped(model: BaseModel) -> BaseModel:
    changes = {name: _cut(value) for name, value in model if isinstance(value, str | list | BaseModel)}
    return model.model_copy(update={name: value for name, value in changes.items() if value is not getattr(model, name)})


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else value[: MAX_TEXT_CHARS - 1] + "…"
    if isinstance(value, BaseModel):
        return _clipped(value)
    if isinstance(value, list):
        return [_cut(item) for item in value[:MAX_ITEMS]]
    if isinstance(value, Mapping):
        return {name: _cut(item) for name, item in value.items()}
    return value

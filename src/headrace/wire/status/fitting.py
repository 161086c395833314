"""Limit the size of a status: cut long texts first, then the ends of the largest lists."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any, Final

from pydantic import BaseModel

from headrace.wire.status.status import Status

MAX_FRAME_BYTES: Final = 64 * 1024
MAX_TEXT_CHARS: Final = 400
MAX_ITEMS: Final = 20
"""Entries of a list within an entry of a list, such as the triggers of an event."""

_LISTS: Final = ("jobs", "triggers", "streams", "backlogs", "scopes", "pipelines", "runs", "task_runs", "recent", "alerts")


def fit_status(status: Status) -> Status:
    """Return the status with long texts cut. Cut its lists too if it would have more than MAX_FRAME_BYTES as JSON."""
    rest = len(status.model_copy(update={name: [] for name in _LISTS}).model_dump_json().encode())
    entries = {name: [_entry(item) for item in getattr(status, name)] for name in _LISTS}
    lists = {name: [item for item, _ in pairs] for name, pairs in entries.items()}
    sizes = {name: [size for _, size in pairs] for name, pairs in entries.items()}
    while rest + sum(map(sum, sizes.values())) > MAX_FRAME_BYTES and any(sizes.values()):
        largest = max(sizes, key=lambda name: sum(sizes[name]))
        keep = len(sizes[largest]) // 2
        del sizes[largest][keep:], lists[largest][keep:]
    return status.model_copy(update=lists)


def _entry(item: BaseModel) -> tuple[BaseModel, int]:
    """Return an entry with long texts cut, and its size as JSON."""
    size = len(item.model_dump_json().encode()) + 1
    if size <= MAX_TEXT_CHARS:  # then none of its texts is longer, and most entries are so short
        return item, size
    clipped = _clipped(item)
    if clipped is item:
        return item, size
    return clipped, len(clipped.model_dump_json().encode()) + 1


def _clipped(model: BaseModel) -> BaseModel:
    """Return the model with long texts cut, or the model itself if it has none."""
    values = ((name, value) for name, value in vars(model).items() if isinstance(value, str | list | BaseModel))
    changes = {name: cut for name, value in values if (cut := _cut(value)) is not value}
    return model.model_copy(update=changes) if changes else model


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_CHARS else value[: MAX_TEXT_CHARS - 1] + "…"
    if isinstance(value, BaseModel):
        return _clipped(value)
    if isinstance(value, list):
        items = [_cut(item) for item in value[:MAX_ITEMS]]
        return value if len(items) == len(value) and all(map(is_, items, value)) else items
    if isinstance(value, Mapping):
        return {name: _cut(item) for name, item in value.items()}
    return value

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace.errors import UpstreamFenced
from headrace.sources.kinesis.table import ProgressTable


class MemoryItems:
    """The client of a table that has one item."""

    def __init__(self) -> None:
        self.item: dict[str, Any] = {"epoch": {"N": "1"}, "id": {"S": "first"}, "created": {"S": "1"}}

    async def update_item(self, **request: Any) -> dict[str, Any]:
        return {"Attributes": self.item}

    async def get_item(self, **request: Any) -> dict[str, Any]:
        return {"Item": self.item} if self.item else {}


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"epoch": {"N": "2"}, "id": {"S": "first"}, "created": {"S": "1"}},
        {"epoch": {"N": "1"}, "id": {"S": "second"}, "created": {"S": "1"}},  # the progress was deleted, and begun again
    ],
)
async def test_a_reader_is_fenced_if_the_item_is_not_its_own(item: dict[str, Any]) -> None:
    items = MemoryItems()
    table = ProgressTable(items, AsyncExitStack(), "kinesis", "table", "shop/orders")
    await table.begin(None, "1", None)
    await table.check()
    items.item = item
    with pytest.raises(UpstreamFenced):
        await table.check()

"""Run tasks that only end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(works: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run these side by side, as tasks of these names; when one ends, cancel the others and raise what it raised."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

"""Run and cancel groups of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

MAX_CONCURRENT: Final = 64
"""Coroutines that `gather_limited` runs concurrently."""


async def run_until_first_ends(works: dict[str, Coroutine[Any, Any, None]]) -> None:
    """Run the coroutines concurrently, as tasks with these names. When one ends, cancel the others and raise its error, if any."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def cancel_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait until they are done."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def gather_limited(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines, `MAX_CONCURRENT` at a time. After an error the others still run, then the first error is raised."""
    waiting, errors = iter(work), []

    async def one_after_the_other() -> None:
        for one in waiting:
            try:
                await one
            except Exception as error:
                errors.append(error)

    await asyncio.gather(*(one_after_the_other() for _ in range(MAX_CONCURRENT)))
    if errors:
        raise errors[0]

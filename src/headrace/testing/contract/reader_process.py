"""A process that reads an upstream and advances it, for tests that kill it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Final

import structlog

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.testing.contract.reading import READ_TIMEOUT_SECONDS
from headrace.triggers.upstream import Upstream, load_upstream

WAITING: Final = "waiting"
"""What the reader prints when it has come to the message that it does not read past."""


async def kill_reader(upstream: Upstream, *, stop: int, size: int, kill_at: str) -> int:
    """Start a reader that advances in batches of `size` before the message `stop`, and kill it once it has printed `kill_at`.

    Messages are objects with their number in `n`. Return the last number that the reader has printed as advanced, or -1.

    Raises:
        ChildProcessError: The reader ended by itself.
        TimeoutError: It did not print `kill_at` in READ_TIMEOUT_SECONDS.
    """
    classpath, kwargs = upstream.serialize()
    arguments = (classpath, json.dumps(kwargs), str(stop), str(size))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        printed = await _until_printed(reader, kill_at)
    finally:
        if reader.returncode is None:
            reader.kill()
        rest, _ = await reader.communicate()
    numbers = [int(word) for word in (*printed, *rest.decode().split()) if word != WAITING]
    return max(numbers, default=-1)


async def _until_printed(reader: asyncio.subprocess.Process, text: str) -> list[str]:
    """Return the lines up to `text`."""
    printed: list[str] = []
    if reader.stdout is None:
        raise ChildProcessError("The reader has no standard output.")
    async with asyncio.timeout(READ_TIMEOUT_SECONDS):
        while text not in printed:
            line = await reader.stdout.readline()
            if not line:
                raise ChildProcessError("The reader ended by itself. Its error is in the captured output.")
            printed.append(line.decode().strip())
    return printed


async def _read(classpath: str, kwargs: dict[str, Any], stop: int, size: int) -> None:
    """Read, advance, and print the number of the last message of each advanced batch."""
    producer = load_upstream(classpath, kwargs).producer()
    batch: list[AdvanceItem] = []
    async for raw, payload in producer.open_stream():
        number = raw.value["n"]
        if number >= stop:
            _print(WAITING)
            await asyncio.Event().wait()
        batch.append(AdvanceItem(payload, AdvanceOutcome(1, 0)))
        if len(batch) == size:
            await producer.advance(batch)
            _print(number)
            batch = []


def _print(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout has the numbers
    asyncio.run(_read(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))

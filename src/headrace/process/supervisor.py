"""Supervision of child processes: start in order, restart after an end, stop in reverse order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import structlog

from headrace.errors import HeadraceError, ProcessFailed, ResourceError
from headrace.process.child import USAGE_EXIT, ChildProcess, ChildSpec, LastOutput

Ready = Callable[[], Awaitable[None]]
Notice = Callable[[str], None]
Report = Callable[[Mapping[str, ChildProcess]], None]
"""Receives all children by name after each start and end."""

_FULL_DISK_PAUSE = 10.0  # seconds between two starts of a process that ends because its disk is full
_GRACE = 25.0  # seconds between SIGTERM and SIGKILL


class ProcessSupervisor:
    """Runs children until the context ends, or until one of them fails permanently.

    The context starts no child: call `start` for each. At its end all children are stopped, the last started first.
    """

    def __init__(self, logs: Path, notice: Notice, report: Report = lambda _: None) -> None:
        self._logs = logs
        self._notice = notice
        self._report = report
        self._log = structlog.get_logger(__name__)
        self._children: dict[str, ChildProcess] = {}
        self._stack = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResourceError(f"Cannot make the log folder {self._logs}: {error.strerror}.", hint="Choose another --home.") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        if self._failed.done() and not self._failed.cancelled():
            self._failed.exception()  # it was raised in `failed`, or the stop came first

    @property
    def restarts(self) -> dict[str, int]:
        """The number of restarts of each child."""
        return {name: child.record.restarts for name, child in self._children.items()}

    def pid(self, name: str) -> int | None:
        """Return the process id of a child, or None if it does not run."""
        return self._children[name].pid

    async def start(self, spec: ChildSpec, *, ready: Ready | None = None) -> asyncio.Task[None]:
        """Start a child and restart it when it ends. Return when it is `ready`. The task ends when the child is complete.

        Raises:
            ProcessFailed: It failed permanently before it was ready.
        """
        child = ChildProcess(spec, self._logs)
        self._children[spec.name] = child
        await child.start()
        self._report(self._children)
        task = asyncio.create_task(self._keep(child), name=f"keep {spec.name}")
        self._stack.push_async_callback(self._stop, child, task)
        if ready is not None:
            waiting = asyncio.create_task(_as_coroutine(ready), name=f"{spec.name} ready")
            await asyncio.wait({waiting, task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait({waiting})
                await self.failed()
            await waiting
        return task

    async def failed(self) -> None:
        """Wait until a child fails permanently.

        Raises:
            ProcessFailed: Always. This method does not return.
        """
        await asyncio.shield(self._failed)

    async def _keep(self, child: ChildProcess) -> None:
        name = child.spec.name
        while True:
            process = child.process
            if process is None:
                return
            started = time.monotonic()
            code = await process.wait()
            child.kill_group()  # descendants of a killed process must not outlive it
            if code == 0 and child.spec.ends:
                return
            how = how_it_ended(code)
            pause = None if code == USAGE_EXIT else child.record.backoff(time.monotonic() - started)
            if pause is None and code != USAGE_EXIT and child.disk_is_full():
                pause = _FULL_DISK_PAUSE  # not given up: that would end the status page, which shows the full disk
            repeats = child.record.ended(how, child.last_output(), time.time())
            self._report(self._children)
            if pause is None:
                self._fail(self._given_up(child, how))
                return
            self._notify(name, how, pause, child.record.output, repeats)
            await asyncio.sleep(pause)
            try:
                await child.start()
            except HeadraceError as error:
                self._fail(error)
                return
            self._report(self._children)

    def _notify(self, name: str, how: str, pause: float, output: LastOutput, repeats: int) -> None:
        """Notify of a restart and its cause. A repeated cause is reported at the second, fourth, eighth time and so on."""
        again = "; starting it again" + (f" in {pause:.1f} s" if pause else "")
        if repeats == 1:
            self._notice("\n".join([f"{name} {how}{again}", *(f"    {line}" for line in output.lines)]))
        elif repeats & (repeats - 1) == 0:
            self._notice(f"{name} {how} for the same reason, {repeats} times now{again}")

    def _fail(self, error: HeadraceError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    @staticmethod
    def _given_up(child: ChildProcess, how: str) -> ProcessFailed:
        message = f"'{child.spec.name}' {how}, and starting it again does not help. The end of {child.log}:\n\n{child.end_of_log()}"
        return ProcessFailed(message)

    async def _stop(self, child: ChildProcess, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})
        await child.stop(_GRACE)
        child.kill_group()
        self._log.debug("child stopped", child=child.spec.name)


def how_it_ended(code: int) -> str:
    """Return how a process ended, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


async def _as_coroutine(ready: Ready) -> None:
    await ready()

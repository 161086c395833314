"""The runner as a child process: how to start it, to see what blocks it, and to end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.errors import ResourceError
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.shared_heartbeat import SIZE, SharedHeartbeat
from headrace.triggerer.supervisor.stacks import users_frames

FILES: Final = "HEADRACE_RUNNER_FILES"
"""The inherited descriptors of a runner: its socket, its pulse, and where it is to write the stack when it is asked to."""

ASK_FOR_STACK: Final = signal.SIGUSR1

NICENESS: Final = 10
"""By so much `lower_priority` raises a process's nice value: beside others it then gets about a tenth of a core."""

_STACK_SECONDS = 1.0
_STACK_REST = 0.05
_NICEST = 19
_MOST_STACK = 16 * 1024


@dataclass(frozen=True)
class RunnerCommand:
    """How to start a runner: what to execute, and its environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


class RunnerProcess:
    """One runner, alive or dead."""

    def __init__(self, process: asyncio.subprocess.Process, link: Channel, pulse: SharedHeartbeat, stacks: int) -> None:
        self._process = process
        self._stacks = stacks
        self.link = link
        self.pulse = pulse

    @classmethod
    async def start(cls, command: RunnerCommand) -> RunnerProcess:
        """Start one. It dies with this process, however that ends."""
        ours, theirs = socket.socketpair()
        stacks, stacks_end = os.pipe()
        os.set_blocking(stacks, False)
        process: asyncio.subprocess.Process | None = None
        try:
            with tempfile.TemporaryFile() as page, theirs:
                page.truncate(SIZE)
                page.flush()
                process = await _started(command, (theirs.fileno(), page.fileno(), stacks_end))
                pulse = SharedHeartbeat(page.fileno())
            return cls(process, await Channel.over(ours), pulse, stacks)
        except BaseException:
            ours.close()
            os.close(stacks)
            if process is not None:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            raise
        finally:
            os.close(stacks_end)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code, or the signal that ended it as a negative number."""
        return await self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self._process.returncode is None:
            self._process.kill()

    def lower_priority(self) -> None:
        """Lower the priority of the process: a blocking trigger may use a whole core."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it is ending
                nice = os.getpriority(os.PRIO_PROCESS, self.pid)
                os.setpriority(os.PRIO_PROCESS, self.pid, min(_NICEST, nice + NICENESS))

    async def close(self) -> None:
        """End it, if it lives, and release what is held for it."""
        self.kill()
        await self._process.wait()
        self.link.close()
        os.close(self._stacks)

    async def stack(self) -> list[str]:
        """Return where users' code is in its main thread, innermost first, also where that holds the interpreter's lock; []: unknown."""
        self._read()
        self._process.send_signal(ASK_FOR_STACK)
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        loop.add_reader(self._stacks, told.set)
        try:
            async with asyncio.timeout(_STACK_SECONDS):
                await told.wait()
                loop.remove_reader(self._stacks)
                await asyncio.sleep(_STACK_REST)  # it comes line by line, and nothing says which is the last
        except TimeoutError:
            return []
        finally:
            loop.remove_reader(self._stacks)
        return users_frames([line.strip() for line in self._read().splitlines() if line.startswith("  File ")])

    def _read(self) -> str:
        try:
            return os.read(self._stacks, _MOST_STACK).decode(errors="replace")
        except BlockingIOError:
            return ""


async def _started(command: RunnerCommand, files: tuple[int, int, int]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            env={**command.environment, FILES: ",".join(map(str, files))},
            pass_fds=files,
        )
    except OSError as error:
        raise ResourceError(f"The runner cannot be started: {error.strerror}.") from error

"""The runner as a child process: start it, inspect what blocks it, end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import ResourceError
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.shared_heartbeat import SIZE, SharedHeartbeat
from headrace.triggerer.supervisor.stacks import users_frames

FILES: Final = "HEADRACE_RUNNER_FILES"
"""Environment variable with a runner's inherited descriptors (socket, shared heartbeat, pipe for its stack) and its parent's process id."""

STACK_SIGNAL: Final = signal.SIGUSR1

NICENESS: Final = 10
"""Increase of the nice value by `lower_priority`: beside other processes, it then gets about a tenth of a core."""

_STACK_SECONDS = 1.0
_STACK_QUIET_SECONDS = 0.05
_MAX_NICENESS = 19
_MAX_STACK_BYTES = 16 * 1024


@dataclass(frozen=True)
class RunnerCommand:
    """The command line and the environment of a runner."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


class RunnerProcess:
    """One runner process."""

    def __init__(self, process: asyncio.subprocess.Process, link: Channel, heartbeat: SharedHeartbeat, stacks: int) -> None:
        self._process = process
        self._stacks = stacks
        self.link = link
        self.heartbeat = heartbeat

    @classmethod
    async def start(cls, command: RunnerCommand) -> RunnerProcess:
        """Start a runner. It ends with this process, however this process ends."""
        ours, theirs = socket.socketpair()
        stacks, stacks_end = os.pipe()
        os.set_blocking(stacks, False)
        process: asyncio.subprocess.Process | None = None
        try:
            with tempfile.TemporaryFile() as page, theirs:
                page.truncate(SIZE)
                page.flush()
                process = await _spawn(command, (theirs.fileno(), page.fileno(), stacks_end))
                heartbeat = SharedHeartbeat(page.fileno())
            return cls(process, await Channel.open(ours), heartbeat, stacks)
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
        """The process id."""
        return self._process.pid

    @property
    def processor_wait(self) -> float:
        """Seconds that its main thread was ready to run and had no processor, or 0.0 if the system does not count them."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_bytes().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    async def wait_ended(self) -> int:
        """Wait until the process has ended. Return its exit code, or the negative number of the signal that ended it."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill the process."""
        if self._process.returncode is None:
            self._process.kill()

    def lower_priority(self) -> None:
        """Lower the priority of the process: a blocking trigger may use a whole core."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it is ending
                nice = os.getpriority(os.PRIO_PROCESS, self.pid)
                os.setpriority(os.PRIO_PROCESS, self.pid, min(_MAX_NICENESS, nice + NICENESS))

    async def close(self) -> None:
        """Kill the process if it lives, and close its descriptors."""
        self.kill()
        await self._process.wait()
        self.link.close()
        os.close(self._stacks)

    async def stack(self) -> list[str]:
        """Return the frames of users' code in its main thread, innermost first, or [] if unknown. Works under a held interpreter lock."""
        self._read()
        self._process.send_signal(STACK_SIGNAL)
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._stacks, readable.set)
        try:
            async with asyncio.timeout(_STACK_SECONDS):
                await readable.wait()
                loop.remove_reader(self._stacks)
                await asyncio.sleep(_STACK_QUIET_SECONDS)  # the lines arrive one by one, and the last one has no mark
        except TimeoutError:
            return []
        finally:
            loop.remove_reader(self._stacks)
        return users_frames([line.strip() for line in self._read().splitlines() if line.startswith("  File ")])

    def _read(self) -> str:
        try:
            return os.read(self._stacks, _MAX_STACK_BYTES).decode(errors="replace")
        except BlockingIOError:
            return ""


async def _spawn(command: RunnerCommand, files: tuple[int, int, int]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            env={**command.environment, FILES: ",".join(map(str, (*files, os.getpid())))},
            pass_fds=files,
        )
    except OSError as error:
        raise ResourceError(f"The runner cannot be started: {error.strerror}.") from error

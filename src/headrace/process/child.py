"""One supervised process: its start, its last output, and the decision to restart it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from headrace.errors import ResourceError
from headrace.logs.format import render

LIFELINE = "HEADRACE_LIFELINE"
"""Set for a child process that exits at the end of its standard input, which its parent holds open."""

REGISTRATION = "HEADRACE_REGISTRATION"
"""Registration id of this start of the process."""

REPLACES = "HEADRACE_REPLACES"
"""Registration id of the previous start, which has ended."""

USAGE_EXIT = 2
"""Exit code for a wrong command or setting. A restart would not help."""

_STABLE_SECONDS = 20.0  # a process that ran longer than this starts again with a clean record
_MAX_FAILURES = 6  # in a row, each after a short uptime
_GIVEN_UP_LINES = 40  # of the log, printed when a process is given up
_RESTART_LINES = 8  # of the last output, printed when a process restarts
_MAX_OUTPUT_BYTES = 64 * 1024
_MAX_ENDS = 20
_MIN_FREE_BYTES = 64 * 1024
_ERROR = "error: "
_HINT = "hint: "


@dataclass(frozen=True)
class ChildSpec:
    """The start of one process: its name, the arguments after `python`, and additional environment variables."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False
    """The process is complete at exit code 0. Otherwise it must run until it is stopped."""


@dataclass(frozen=True, slots=True)
class LastOutput:
    """The last output of a process: the `lines` with its error, the `reason` in one line, and a `hint`."""

    lines: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""

    @classmethod
    def parse(cls, text: str) -> LastOutput:
        """Return the last output from the end of a log: from the last error message of a command on, if there is one."""
        lines = [line for written in text.splitlines() if written.strip() for line in render(written).splitlines()]
        first = next((at for at in reversed(range(len(lines))) if lines[at].startswith(_ERROR)), None)
        if first is None:
            last = lines[-_RESTART_LINES:]
            return cls(tuple(last), last[-1].strip() if last else "")
        message = lines[first : first + _RESTART_LINES]
        hint = next((line.removeprefix(_HINT) for line in message if line.startswith(_HINT)), "")
        return cls(tuple(message), message[0].removeprefix(_ERROR), hint)

    @property
    def cause(self) -> str:
        """The reason without numbers and times, which differ between two ends for the same cause."""
        return re.sub(r"\d+", "#", self.reason)


@dataclass
class RestartHistory:
    """The ends and restarts of one process. It decides whether and when the process restarts."""

    failures: int = 0
    restarts: int = 0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_ENDS))
    """Times at which it ended, in seconds since the epoch."""
    how: str = ""
    output: LastOutput = field(default_factory=LastOutput)
    repeats: int = 0
    """Number of ends in a row for the same cause."""

    def ended(self, how: str, output: LastOutput, at: float) -> int:
        """Record an end. Return the number of ends in a row for the same cause, including this one."""
        self.ends.append(at)
        self.repeats = self.repeats + 1 if (how, output.cause) == (self.how, self.output.cause) else 1
        self.how, self.output = how, output
        return self.repeats

    def backoff(self, uptime: float) -> float | None:
        """Return the seconds to wait before the next start after `uptime` seconds, or None to give up."""
        self.failures = 1 if uptime >= _STABLE_SECONDS else self.failures + 1
        if self.failures >= _MAX_FAILURES:
            return None
        self.restarts += 1
        return 0.0 if self.failures == 1 else min(10.0, 0.25 * 2.0**self.failures)


class ChildProcess:
    """One process at a time under one name. Its output goes to `<logs>/<name>.log`."""

    def __init__(self, spec: ChildSpec, logs: Path) -> None:
        self.spec = spec
        self.log = logs / f"{spec.name}.log"
        self.record = RestartHistory()
        self.process: asyncio.subprocess.Process | None = None
        self._registration: str | None = None
        self._begin = 0

    @property
    def pid(self) -> int | None:
        """The id of the process while it runs."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process in its own session, so that Ctrl-C reaches only the supervisor.

        Raises:
            ResourceError: The log cannot be written, or the process cannot be created.
        """
        environment = dict(os.environ) | dict(self.spec.environment) | {LIFELINE: "stdin", REGISTRATION: uuid4().hex}
        if self._registration:
            environment[REPLACES] = self._registration
        self._registration = environment[REGISTRATION]
        try:
            with self.log.open("ab") as log:
                self._begin = log.tell()
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *self.spec.arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise ResourceError(f"Cannot start '{self.spec.name}': {error.strerror}.", hint=f"Check {self.log.parent}.") from error
        return self.process

    async def stop(self, grace: float) -> None:
        """Send SIGTERM. After `grace` seconds, kill the process and its descendants."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            self.kill_group()
            await process.wait()

    def kill_group(self) -> None:
        """Kill the process and its descendants."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def last_output(self) -> LastOutput:
        """Return the last output of the process that ended last, or an error about a full disk if its log is on one."""
        if self.disk_is_full():
            folder = self.log.parent
            error = f"The disk is full: {folder} has no space, not even for the log that says why the process ended."
            hint = f"Free space on the disk of {folder}."
            return LastOutput((f"{_ERROR}{error}", f"{_HINT}{hint}"), error, hint)
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._begin, end - _MAX_OUTPUT_BYTES))
                return LastOutput.parse(log.read().decode(errors="replace"))
        except OSError as error:
            return LastOutput((), f"(its log cannot be read: {error.strerror})")

    def disk_is_full(self) -> bool:
        """Return whether the disk of its log and state has no space."""
        try:
            return shutil.disk_usage(self.log.parent).free < _MIN_FREE_BYTES
        except OSError:  # the folder was deleted
            return False

    def end_of_log(self) -> str:
        """Return the end of its log, also if an earlier process wrote it."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                return "\n".join(render(line) for line in deque(lines, maxlen=_GIVEN_UP_LINES)).rstrip()
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"

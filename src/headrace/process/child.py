"""One supervised process: how to start it, what it said when it ended, and when to start it again."""

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
"""Set for a child whose standard input ends when its parent does."""

REGISTRATION = "HEADRACE_REGISTRATION"
"""The registration id of this incarnation."""

REPLACES = "HEADRACE_REPLACES"
"""The registration id of the incarnation before it, which is known to be dead."""

USAGE_EXIT = 2
"""Exit code of a process that was asked for something that cannot be: starting it again would not help."""

_LONG_LIFE = 20.0  # seconds; a process that lived longer than this starts with a clean record
_MOST_FAILURES = 6  # in a row, each after a short life
_TAIL = 40  # lines of a log shown when its process is given up on
_SHOWN = 8  # lines shown of why a process ended that is started again
_MOST_SAID_BYTES = 64 * 1024
_MOST_ENDS = 20
_ROOM_BYTES = 64 * 1024
_ERROR = "error: "
_HINT = "hint: "


@dataclass(frozen=True)
class ChildSpec:
    """How to start one process: its name, the arguments after `python`, and what its environment adds."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False
    """It is done when it exits with 0, rather than expected to run without end."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a process said last: the `lines` that tell why it ended, the `reason` in one line, and what to do."""

    lines: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""

    @classmethod
    def of(cls, said: str) -> LastWords:
        """Find them in the end of a log: from its last error message on, where the process wrote one as a command does."""
        lines = [line for text in said.splitlines() if text.strip() for line in render(text).splitlines()]
        begin = next((at for at in reversed(range(len(lines))) if lines[at].startswith(_ERROR)), None)
        if begin is None:
            shown = lines[-_SHOWN:]
            return cls(tuple(shown), shown[-1].strip() if shown else "")
        told = lines[begin : begin + _SHOWN]
        hint = next((line.removeprefix(_HINT) for line in told if line.startswith(_HINT)), "")
        return cls(tuple(told), told[0].removeprefix(_ERROR), hint)

    @property
    def cause(self) -> str:
        """What two ends for the same reason have in common: numbers and times differ."""
        return re.sub(r"\d+", "#", self.reason)


@dataclass
class RestartHistory:
    """What happened to one process: pure bookkeeping that decides whether and when it starts again."""

    failures: int = 0
    restarts: int = 0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_ENDS))
    """When it ended, in seconds since the epoch."""
    how: str = ""
    words: LastWords = field(default_factory=LastWords)
    same: int = 0
    """How often in a row it ended for the same cause."""

    def ended(self, how: str, words: LastWords, at: float) -> int:
        """Note an end; return how many there were in a row for the same cause, this one included."""
        self.ends.append(at)
        self.same = self.same + 1 if (how, words.cause) == (self.how, self.words.cause) else 1
        self.how, self.words = how, words
        return self.same

    def backoff(self, lived: float) -> float | None:
        """Return the seconds to wait before the next start after a life of `lived` seconds, or None to give up."""
        self.failures = 1 if lived >= _LONG_LIFE else self.failures + 1
        if self.failures >= _MOST_FAILURES:
            return None
        self.restarts += 1
        return 0.0 if self.failures == 1 else min(10.0, 0.25 * 2.0**self.failures)


class ChildProcess:
    """One process at a time under one name; its output goes to `<logs>/<name>.log`."""

    def __init__(self, spec: ChildSpec, logs: Path) -> None:
        self.spec = spec
        self.log = logs / f"{spec.name}.log"
        self.record = RestartHistory()
        self.process: asyncio.subprocess.Process | None = None
        self._registration: str | None = None
        self._begin = 0

    @property
    def pid(self) -> int | None:
        """The process's id, while it runs."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process in a session of its own, so that Ctrl-C reaches the supervisor alone.

        Raises:
            ResourceError: The log cannot be written, or the process cannot be made.
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
        """Ask the process to end; after `grace` seconds make it, and whatever it started."""
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
        """End the process and its descendants at once."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def last_words(self) -> LastWords:
        """Return what the process that ended last said at its end; of a full disk that its log is on, that it is full."""
        if self.disk_is_full():
            folder = self.log.parent
            error = f"The disk is full: {folder} takes no more, not even the log that says why the process ended."
            hint = f"Make room on the disk of {folder}."
            return LastWords((f"{_ERROR}{error}", f"{_HINT}{hint}"), error, hint)
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._begin, end - _MOST_SAID_BYTES))
                return LastWords.of(log.read().decode(errors="replace"))
        except OSError as error:
            return LastWords((), f"(its log cannot be read: {error.strerror})")

    def disk_is_full(self) -> bool:
        """Whether the disk of its log, on which its state is too, has no room."""
        try:
            return shutil.disk_usage(self.log.parent).free < _ROOM_BYTES
        except OSError:  # the folder is gone
            return False

    def end_of_log(self) -> str:
        """Return the end of its log, whichever process wrote it."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                return "\n".join(render(line) for line in deque(lines, maxlen=_TAIL)).rstrip()
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"

"""Run real processes under load, inject the faults of a plan, and restore all processes at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx

from headrace.process.child import LIFELINE, REGISTRATION, REPLACES
from headrace.settings import new_fernet_key
from support.chaos.feed import Load
from support.chaos.plan import Fault, Shape
from support.processes.deployment import KEY, TRIGGERS, Process, lifeline, until
from support.processes.network import CALM, Network
from support.processes.ports import free_port
from support.processes.postgres import Postgres

TICK: Final = 0.05
LOG_LINES: Final = 30
FAKETIME: Final = "libfaketimeMT.so.1"


def clock_library() -> Path | None:
    """Return Debian's library that moves a process's wall clock, where it is installed."""
    return next(Path("/usr/lib").glob(f"*/faketime/{FAKETIME}"), None)


@dataclass
class Member:
    """A process of the fleet, and the next one where it ended: `wanted` says whether it should be there now."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    wanted: bool = True
    process: Process | None = None
    starts: int = 0

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.popen.poll() is None


class Fleet:
    """Apis on one database, triggerers of one project, and what feeds them. A context manager."""

    def __init__(self, folder: Path, shape: Shape, seed: int, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.shape = shape
        self.load = Load(folder, shape, seed)
        self.happened: Counter[str] = Counter()
        self.by_themselves: list[str] = []
        """Processes that ended without an injected fault."""
        self._say = say
        self._exits = ExitStack()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._seed = seed

    def __enter__(self) -> Fleet:
        with ExitStack() as exits:
            self._begin(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _begin(self, exits: ExitStack) -> None:
        self.postgres = Postgres(fsync=False) if self.shape.postgresql else None
        if self.postgres is not None:
            exits.callback(self.postgres.close)
            self.postgres.admin("CREATE DATABASE {}", "chaos")
            self.database = self.postgres.url("chaos")
        else:
            self.database = f"sqlite:///{self.folder / 'headrace.db'}"
        shutil.copy(TRIGGERS, self.folder / TRIGGERS.name)
        exits.enter_context(self.load.opened())
        project = self.folder / "project.py"
        project.write_text(self.load.project_text())
        self._settings = self._common(project)
        ports = [free_port() for _ in range(self.shape.apis)]
        self.network = Network(ports[-1], self._seed)
        through = exits.enter_context(self.network.serving())
        self.members = {f"api-{n}": self._member(f"api-{n}", ("api",), {"PORT": str(port)}) for n, port in enumerate(ports)}
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        exits.callback(self._end)
        for n, url in enumerate(self.urls):
            self._start(self.members[f"api-{n}"])  # one after the other: the first makes the schema
            until(partial(answers, url), f"{url} answers", patience=200)
        for n in range(self.shape.triggerers):
            url = through if n == self.shape.triggerers - 1 else self.urls[n % len(self.urls)]
            self.members[f"triggerer-{n}"] = self._member(f"triggerer-{n}", ("triggerer",), {"API_URL": url})

    def run(self, faults: list[Fault]) -> None:
        """Apply the load, inject all faults of the plan, and restore all processes at the end."""
        began = time.monotonic()
        for fault in faults:
            self._at(began + fault.at, partial(self._befall, fault))
        for name, member in self.members.items():
            if name.startswith("triggerer"):
                self._start(member)
        with self.load.flowing():
            while time.monotonic() < began + self.shape.seconds:
                self._turn()
        while self._due:  # the last undoings
            self._turn()
        until(self._all_answer, "all apis answer again")

    def keep(self) -> None:
        """Start again who ended, as an operator's process manager would; say so where nobody had ended it."""
        for member in self.members.values():
            if member.wanted and member.process is not None and not member.runs:
                self.by_themselves.append(f"{member.name} ended by itself with {member.process.popen.returncode}")
                self._say(self.by_themselves[-1])
                self._start(member)

    def stop(self) -> list[int]:
        """Stop the triggerers as a person would; return their exit codes."""
        codes = []
        for member in self.members.values():
            if member.name.startswith("triggerer") and member.process is not None:
                member.wanted = False
                codes.append(member.process.stop())
        return codes

    def keep_evidence(self) -> None:
        """Have every process write what it is at into its log, and end it with that."""
        for member in self.members.values():
            member.wanted = False
            if member.runs and member.process is not None:
                for pid in (*runners(member), member.process.pid):
                    send(pid, signal.SIGCONT)
                    send(pid, signal.SIGABRT)

    def log_tails(self) -> dict[str, str]:
        """Return the last lines of each triggerer's log: CI shows the output of a test, and not its folder."""
        logs = {name: self.folder / f"{name}.log" for name in self.members if name.startswith("triggerer")}
        return {name: "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:]) for name, path in logs.items() if path.exists()}

    def _all_answer(self) -> bool:
        self.keep()
        return all(answers(url) for url in self.urls)

    def _turn(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heappop(self._due)[2]()
        self.keep()
        time.sleep(TICK)

    def _at(self, moment: float, what: Callable[[], None]) -> None:
        heappush(self._due, (moment, next(self._number), what))

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, what)

    def _befall(self, fault: Fault) -> None:
        self._say(str(fault))
        self.happened[f"{fault.kind} {fault.how}".strip()] += 1
        match fault.kind:
            case "kill":
                self._kill(self.members[fault.who], fault)
            case "kill-runner":
                for pid in runners(self.members[fault.who]):
                    send(pid, signal.SIGKILL)
            case "pause":
                self._pause(self.members[fault.who], fault)
            case "database":
                self._restart_database(fault)
            case "network":
                self.network.mode = fault.how
                self._later(fault.lasts, self._calm)
            case "clock":
                self._clock(fault.who, fault.how)
                self._later(fault.lasts, partial(self._clock, fault.who, "+0s"))

    def _kill(self, member: Member, fault: Fault) -> None:
        if member.process is None or not member.wanted:
            return
        member.wanted = False
        member.process.kill()
        self._later(fault.lasts, partial(self._start, member, replaces=fault.how == "replaced"))

    def _pause(self, member: Member, fault: Fault) -> None:
        """Stop the processes for longer than anybody may be silent; whoever was killed meanwhile is not there to go on."""
        if not member.runs or member.process is None:
            return
        pids = [member.process.pid] if fault.how in ("supervisor", "both") else []
        pids += runners(member) if fault.how in ("runner", "both") else []
        for pid in pids:
            send(pid, signal.SIGSTOP)
            self._later(fault.lasts, partial(send, pid, signal.SIGCONT))

    def _restart_database(self, fault: Fault) -> None:
        assert self.postgres is not None
        self.postgres.stop(fault.how)
        limit = time.monotonic() + fault.lasts
        while time.monotonic() < limit:
            self.keep()
            time.sleep(TICK)
        self.postgres.start()

    def _calm(self) -> None:
        self.network.mode = CALM

    def _clock(self, who: str, offset: str) -> None:
        fresh = self.folder / f"{who}.clock.new"
        fresh.write_text(f"{offset}\n")
        fresh.rename(self.folder / f"{who}.clock")

    def _member(self, name: str, arguments: tuple[str, ...], settings: dict[str, str]) -> Member:
        environment = self._settings | {f"HEADRACE_{key}": value for key, value in settings.items()}
        library = clock_library()
        if self.shape.clocks and library is not None and name in ("api-0", "triggerer-1"):
            self._clock(name, "+0s")
            environment |= {
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(self.folder / f"{name}.clock"),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }
        return Member(name, arguments, environment)

    def _common(self, project: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        settings = {
            "HOME": self.folder / "home",
            "DATABASE_URL": self.database,
            "KEY": KEY,
            "FERNET_KEYS": new_fernet_key(),
            "PROJECT": project,
            "JOB_TIMEOUT": self.shape.threshold,
            "API_TIMEOUT": 5,
            "ACK_TIMEOUT": 60,
            "LOG_FORMAT": "text",
        }
        return (
            kept
            | {f"HEADRACE_{name}": str(value) for name, value in settings.items()}
            | {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        )

    def _start(self, member: Member, *, replaces: bool = False) -> None:
        forget_clocks()
        more = {REGISTRATION: uuid4().hex}
        if replaces and member.process is not None:
            more[REPLACES] = member.process.registration
        with (self.folder / f"{member.name}.log").open("ab") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "headrace", *member.arguments],
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                env=member.environment | more | {LIFELINE: "stdin"},
                cwd=self.folder,
                start_new_session=True,
            )
        member.process = Process(member.name, popen, more[REGISTRATION])
        member.wanted = True
        member.starts += 1

    def _end(self) -> None:
        for member in reversed(self.members.values()):
            member.wanted = False
            if member.process is not None:
                for pid in runners(member):
                    send(pid, signal.SIGCONT)
                member.process.stop()


def forget_clocks() -> None:
    """Remove what the clock library of killed processes left: who gets the number of one anew would wait for its lock for ever."""
    for path in Path("/dev/shm").glob("*faketime_*"):
        if not Path(f"/proc/{path.name.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)


def runners(member: Member) -> list[int]:
    """Return the processes that a triggerer has started: its runner, if there is one just now."""
    if member.process is None:
        return []
    pid = member.process.pid
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def answers(url: str) -> bool:
    """Whether an api answers there."""
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, verify=False, timeout=5).is_success
    except httpx.TransportError:
        return False

"""Real child processes: restarted after a kill, stopped in reverse order, given up with their last output."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ProcessFailed
from headrace.process.alerts import standalone_facts
from headrace.process.child import ChildProcess, ChildSpec
from headrace.process.supervisor import ProcessSupervisor

ANNOUNCE = "import os, pathlib; pathlib.Path(os.environ['MARK'] + str(os.getpid())).touch();"
WAIT_FOR_TERM = ANNOUNCE + "import signal; signal.sigwait([signal.SIGTERM])"
WAIT_FOR_PARENT = ANNOUNCE + "import sys; sys.stdin.read()"


def spec(name: str, script: str, folder: Path, *, ends: bool = False) -> ChildSpec:
    return ChildSpec(name, ("-c", script), {"MARK": str(folder / f"{name}-")}, ends=ends)


async def appeared(folder: Path, name: str, count: int) -> list[int]:
    """Return the process ids of `count` incarnations of a child, once they have all begun."""
    while len(found := sorted(folder.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime_ns)) < count:
        await asyncio.sleep(0.01)
    return [int(path.name.rpartition("-")[2]) for path in found]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_killed_child_restarts_and_a_stop_ends_it(tmp_path: Path) -> None:
    notices: list[str] = []
    async with ProcessSupervisor(tmp_path / "logs", notices.append) as fleet:
        await fleet.start(spec("one", WAIT_FOR_TERM, tmp_path))
        (first,) = await appeared(tmp_path, "one", 1)
        os.kill(first, signal.SIGKILL)
        _, second = await appeared(tmp_path, "one", 2)
        while fleet.pid("one") != second:  # a child may run before its supervisor knows it
            await asyncio.sleep(0.01)
        assert fleet.restarts == {"one": 1}
    assert not alive(first)
    assert not alive(second)
    assert notices == ["one was ended by signal 9; starting it again"]


FAILS = (
    ANNOUNCE
    + """import sys
print('{"timestamp": "2026-01-01T00:00:00Z", "level": "info", "event": "job registered"}')
print('error: the event log ends at', len(sys.argv[0]) + os.getpid(), file=sys.stderr)
print('hint: restore the log', file=sys.stderr)
sys.exit(1)"""
)


async def test_the_reason_of_a_restart_is_reported_once_and_then_counted(tmp_path: Path) -> None:
    notices: list[str] = []
    reports: list[dict[str, Any]] = []
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "one.log").write_text("error: of an earlier day\n")

    def report(children: Mapping[str, ChildProcess]) -> None:
        reports.append(standalone_facts(children)["children"]["one"])

    async with ProcessSupervisor(tmp_path / "logs", notices.append, report) as fleet:
        await fleet.start(spec("one", FAILS, tmp_path))
        while len(notices) < 2:  # at the first end and the second
            await asyncio.sleep(0.01)
    first, second = notices
    assert first.splitlines()[0] == "one ended with exit code 1; starting it again"
    assert re.fullmatch(r"    error: the event log ends at \d+\n    hint: restore the log", first.partition("\n")[2])
    assert second == "one ended with exit code 1 for the same reason, 2 times now; starting it again in 1.0 s"
    last = next(report for report in reversed(reports) if len(report["ends"]) == 2)
    assert last["reason"].startswith("the event log ends at ")
    assert last["hint"] == "restore the log"


async def test_a_child_without_an_error_message_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    notices: list[str] = []
    script = ANNOUNCE + "print('\\n'.join(map(str, range(20)))); raise RuntimeError('boom')"
    async with ProcessSupervisor(tmp_path / "logs", notices.append) as fleet:
        await fleet.start(spec("one", script, tmp_path))
        while not notices:
            await asyncio.sleep(0.01)
    lines = notices[0].splitlines()
    assert len(lines) == 9
    assert lines[-1] == "    RuntimeError: boom"


async def test_a_finished_child_is_not_restarted(tmp_path: Path) -> None:
    async with ProcessSupervisor(tmp_path / "logs", pytest.fail) as fleet:
        await (await fleet.start(spec("done", ANNOUNCE, tmp_path, ends=True)))
        assert fleet.pid("done") is None


async def test_a_usage_error_is_final_and_the_last_output_is_shown(tmp_path: Path) -> None:
    script = "import sys; print('error: no such project', file=sys.stderr); sys.exit(2)"
    async with ProcessSupervisor(tmp_path / "logs", pytest.fail) as fleet:
        await fleet.start(spec("wrong", script, tmp_path))
        with pytest.raises(ProcessFailed, match=r"(?s)'wrong' ended with exit code 2.*error: no such project"):
            await fleet.failed()


async def test_waiting_until_ready_ends_when_the_child_fails_for_good(tmp_path: Path) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with ProcessSupervisor(tmp_path / "logs", pytest.fail) as fleet:
        with pytest.raises(ProcessFailed, match="exit code 2"):
            await fleet.start(spec("wrong", "import sys; sys.exit(2)", tmp_path), ready=never)


async def test_children_lose_their_standard_input_with_the_supervisor(tmp_path: Path) -> None:
    """What the lifeline rests on: a child's standard input ends when its supervisor is gone."""
    async with ProcessSupervisor(tmp_path / "logs", lambda _: None) as fleet:
        task = await fleet.start(spec("held", WAIT_FOR_PARENT, tmp_path, ends=True))
        await appeared(tmp_path, "held", 1)
        child = fleet._children["held"]
        assert child.process is not None
        assert child.process.stdin is not None
        child.process.stdin.close()
        await task


async def test_a_child_with_a_full_disk_is_reported_and_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    monkeypatch.setattr("headrace.process.child.shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    monkeypatch.setattr("headrace.process.child.RestartHistory.backoff", lambda *_, **__: None)  # as after six short lives
    monkeypatch.setattr("headrace.process.supervisor._FULL_DISK_PAUSE", 0.01)
    async with ProcessSupervisor(tmp_path / "logs", notices.append) as fleet:
        await fleet.start(spec("one", ANNOUNCE + "raise SystemExit(1)", tmp_path))
        await appeared(tmp_path, "one", 3)
        assert not fleet._failed.done()
    assert f"error: The disk is full: {tmp_path / 'logs'} has no space" in notices[0]
    assert "hint: Free space on the disk" in notices[0]

"""User code blocks or crashes the runner: the supervisor reports the trigger, the job continues, and every event is stored once."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Process, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIGGERS = [Trigger("a"), Trigger("even", declared=True, match={"half": ["even"]})]


def runner_of(triggerer: Process) -> int:
    """Return the process id of its runner, once there is one."""
    children = Path(f"/proc/{triggerer.pid}/task/{triggerer.pid}/children")
    until(lambda: children.read_text().split(), "there is a runner")
    return int(children.read_text().split()[0])


def is_gone(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def log_of(deployment: Deployment, process: Process) -> str:
    return (deployment.folder / f"{process.name}.log").read_text()


def blocking(tmp_path: Path, block: float | str) -> Trigger:
    return Trigger("blocks", how={"block_at": 50, "block": block, "once": str(tmp_path / "blocked")})


def test_a_filter_that_blocks_the_loop_is_logged_and_the_job_continues(tmp_path: Path) -> None:
    with Deployment(tmp_path, job_timeout=2) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, blocking(tmp_path, 6)])))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(300)
        until(lambda: "loop blocked by users' code" in log_of(deployment, triggerer), "the block is told")
        expected = {"a": numbers, "blocks": numbers, "even": range(0, 300, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        # It was silent for three times as long as a job may be, and is the same job, on the same process.
        assert deployment.rows("SELECT state FROM jobs") == [("running",)]
        until(lambda: "loop unblocked" in log_of(deployment, triggerer), "the end of the block is told")
        told = log_of(deployment, triggerer)
        assert "trigger=blocks" in told or '"trigger":"blocks"' in told
        assert "in _block" in told


@pytest.mark.parametrize("block", ["regex", 600])
def test_a_stuck_trigger_process_is_ended_and_all_triggers_continue(tmp_path: Path, block: float | str) -> None:
    with Deployment(tmp_path, stuck_timeout=3) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, blocking(tmp_path, block)])))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(300)
        until(lambda: "trigger process lost" in log_of(deployment, triggerer), "the stuck process is ended")
        expected = {"a": numbers, "blocks": numbers, "even": range(0, 300, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        assert "in _block" in log_of(deployment, triggerer)
        assert triggerer.popen.poll() is None
        assert deployment.rows("SELECT state FROM jobs") == [("running",)]
        assert deployment.rows("SELECT name FROM triggers WHERE failures > 0") == [("blocks",)]


def test_a_trigger_that_always_blocks_is_parked_and_the_others_continue(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    always = Trigger("blocks", how={"block_at": 50, "block": 600, "until": str(mended)}, max_restarts=1)
    with Deployment(tmp_path, stuck_timeout=1.5) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, always])))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(300)
        until(lambda: deployment.rows("SELECT state FROM triggers WHERE name = 'blocks'") == [("parked",)], "it is parked")
        others = {"a": numbers, "even": range(0, 300, 2)}
        until(lambda: all(oracle.counts()[name] >= len(wanted) for name, wanted in others.items()), "the others have fired on all")
        oracle.advanced()
        told = deployment.cli("triggers", "show", "blocks").stdout
        assert "Blocked: The process was blocked" in told
        assert "in _block" in told
        assert "parked" in told
        assert deployment.rows("SELECT name, failures FROM triggers WHERE failures > 0") == [("blocks", 2)]
        mended.touch()
        assert deployment.cli("triggers", "resume", "blocks").returncode == 0
        expected = others | {"blocks": numbers}
        oracle.settled(expected)
        oracle.judge(expected)
        assert triggerer.popen.poll() is None


@pytest.mark.parametrize("crash", ["segfault", "exit"])
def test_a_trigger_that_ends_its_process_fails_and_all_triggers_continue(tmp_path: Path, crash: str) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, blocking(tmp_path, crash)])))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(300)
        expected = {"a": numbers, "blocks": numbers, "even": range(0, 300, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        assert deployment.rows("SELECT name FROM triggers WHERE failures > 0") == [("blocks",)]


def test_a_killed_runner_is_replaced(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, TRIGGERS)))
        oracle = Oracle(deployment, feed)
        for _ in range(3):
            count = feed.sent + 200
            feed.send(200)
            oracle.fired("a", count - 150)
            runner = runner_of(triggerer)
            os.kill(runner, signal.SIGKILL)
            until(partial(is_gone, runner), "the runner is gone")
        expected = {"a": range(600), "even": range(0, 600, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        assert triggerer.stop() == 0


@pytest.mark.parametrize("block", [0, "regex", 600])
def test_a_runner_does_not_outlive_its_supervisor(tmp_path: Path, block: float | str) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, blocking(tmp_path, block)])))
        oracle = Oracle(deployment, feed)
        feed.send(100)
        until((tmp_path / "blocked").exists, "the trigger is where it may block")
        runner = runner_of(triggerer)
        if block:  # for as long as it blocks: nobody ends this runner before it has been silent for stuck_timeout
            until(lambda: "blocks its process for" in deployment.cli("status").stdout, "people are told who blocks")
        triggerer.kill()
        until(lambda: is_gone(runner), "the runner is gone", 5)
        deployment.triggerer(tmp_path / "project.py", replaces=triggerer)
        expected = {"a": range(100), "blocks": range(100), "even": range(0, 100, 2)}
        oracle.settled(expected)
        oracle.judge(expected)


def test_a_stop_finishes_events_in_flight_and_completes_the_job(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        slow = Trigger("slow", how={"pause": [10, 0.05]})
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, slow])))
        oracle = Oracle(deployment, feed)
        feed.send(800)  # fewer than may wait for one trigger: more would be spilled
        oracle.fired("slow", 20)
        runner = runner_of(triggerer)
        assert triggerer.stop() == 0
        assert is_gone(runner)
        assert deployment.rows("SELECT state FROM jobs") == [("succeeded",)]
        # What was read is advanced, what is left was not read: nobody gets anything again.
        assert "events in flight finished" in log_of(deployment, triggerer)
        fired = oracle.counts()
        assert fired["a"] == fired["slow"] == 800 - feed.left()
        deployment.triggerer(tmp_path / "project.py")
        expected = {"a": range(800), "slow": range(800), "even": range(0, 800, 2)}
        oracle.settled(expected)
        oracle.judge(expected)


def test_a_second_signal_stops_without_waiting_for_events_in_flight(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, blocking(tmp_path, 600)])))
        feed.send(100)
        until((tmp_path / "blocked").exists, "the trigger blocks")
        triggerer.send(signal.SIGINT)
        until(lambda: "a second signal ends it at once" in log_of(deployment, triggerer), "the first signal is heard")
        triggerer.send(signal.SIGINT)
        assert triggerer.popen.wait(8) == 0
        assert deployment.rows("SELECT state FROM jobs") == [("succeeded",)]


def test_an_event_that_is_not_json_becomes_a_dead_letter(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        strange = Trigger("strange", how={"strange_at": 7})
        deployment.triggerer(deployment.project(project_text(feed.queue, [*TRIGGERS, strange])))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(100)
        expected = {"a": numbers, "strange": [n for n in numbers if n != 7], "even": range(0, 100, 2)}
        until(lambda: all(oracle.counts().get(name, 0) >= len(wanted) for name, wanted in expected.items()), "all others fire")
        oracle.advanced()
        assert deployment.rows("SELECT kind FROM dead_letters") == [("unserialisable",)]


def test_a_project_that_cannot_be_imported_ends_the_triggerer_with_an_error(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        triggerer = deployment.triggerer(deployment.project("import nowhere_at_all\n"))
        assert triggerer.popen.wait(30) == 2
        assert "nowhere_at_all" in log_of(deployment, triggerer)

"""Log lines go to the log of their trigger or run, with their trace. A follower reads all lines, also over a rotation."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import structlog

from headrace.core.tracing import event_trace, run_trace_id, traceparent_in
from headrace.logs.context import run_log, run_target
from headrace.logs.follower import follow, next_job_log
from headrace.logs.names import LogName, run_log_name, trigger_log
from headrace.logs.read_tokens import ReadTokens
from headrace.logs.reader import read_page
from headrace.logs.server import LogServerConfig, serve_logs, serve_logs_in_thread
from headrace.logs.setup import TargetHandler, configure, masks, process_handler
from headrace.logs.writer import LogFiles, LogLimits
from headrace.triggerer.context import EventOrigin, TriggerContext, current_trigger, log_as
from headrace.triggerer.trigger_log import trigger_target

NAME = trigger_log(7, 3)


@pytest.fixture
def process_log(tmp_path: Path) -> Iterator[io.StringIO]:
    """Set logging up as a process does; gives what goes into the process's log."""
    root, stream = logging.getLogger(), io.StringIO()
    before, configuration = (root.handlers[:], root.level), structlog.get_config()
    handler = TargetHandler(LogFiles(tmp_path, refuse), [trigger_target, run_target])
    for old in root.handlers:
        root.removeHandler(old)
    configure(logging.INFO, [process_handler(stream, as_json=True, colours=False, finders=[trigger_target]), handler])
    yield stream
    root.removeHandler(handler)
    handler.close()
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    structlog.configure(**configuration)


def refuse(error: OSError) -> None:
    raise error


@contextmanager
def running(trigger_id: int = 7) -> Iterator[None]:
    token = current_trigger.set(TriggerContext(trigger_id, "legs.united", f"trigger-{trigger_id}-job-3.log"))
    try:
        yield
    finally:
        current_trigger.reset(token)


def logged(root: Path, name: LogName) -> list[dict[str, Any]]:
    page = read_page(root, name)
    return [] if page is None else [json.loads(line) for line in page.data.splitlines()]


async def test_each_trigger_log_has_only_its_own_lines(process_log: io.StringIO, tmp_path: Path) -> None:
    async def work(trigger_id: int) -> None:
        with running(trigger_id):
            for n in range(20):
                await asyncio.sleep(0)
                structlog.get_logger("mine").info("seen", n=n)
                logging.getLogger("theirs").info("and %s", n, extra={"by": trigger_id})
                await asyncio.to_thread(structlog.get_logger("thread").info, "in a thread")

    await asyncio.gather(work(7), work(8))
    structlog.get_logger("engine").info("of no trigger")
    for trigger_id in (7, 8):
        lines = logged(tmp_path, trigger_log(trigger_id, 3))
        assert len(lines) == 60
        assert {line["trigger_id"] for line in lines} == {trigger_id}
        assert lines[0].items() >= {"event": "seen", "level": "info", "logger": "mine", "trigger": "legs.united", "job": 3, "n": 0}.items()
        assert {"event": "and 0", "logger": "theirs", "by": trigger_id}.items() <= lines[1].items()
        assert lines[0]["timestamp"].endswith("Z")
    assert "of no trigger" in process_log.getvalue()
    assert '"trigger_id":8' in process_log.getvalue()
    assert "and 0" not in process_log.getvalue(), "what libraries say at INFO floods the process's log"


def test_a_line_names_the_filters_current_raw_event_by_default(process_log: io.StringIO, tmp_path: Path) -> None:
    place = EventOrigin("queue:q", "one", 7, "00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    at: list[EventOrigin | None] = [place]
    with log_as(TriggerContext(7, "legs.united", "trigger-7-job-3.log", lambda: at[-1])):
        for now in (place, place._replace(position=8, trace=None), None):
            at.append(now)
            structlog.get_logger("mine").info("seen")
        at.append(place._replace(position=9))
        structlog.get_logger("mine").info("seen", lane="the user's own", trigger="forged")
    first, second, third, fourth = logged(tmp_path, trigger_log(7, 3))
    assert first.items() >= {"stream": "queue:q", "lane": "one", "position": 7, "trace_id": "a" * 32}.items()
    assert second.items() >= {"lane": "one", "position": 8}.items()
    assert "trace_id" not in second
    assert not {"stream", "lane", "position"} & third.keys()
    assert fourth.items() >= {"lane": "the user's own", "position": 9, "trigger": "legs.united"}.items()
    structlog.get_logger("mine").info("of no trigger")
    assert len(logged(tmp_path, trigger_log(7, 3))) == 4


def test_a_trigger_without_log_lines_has_no_file(process_log: io.StringIO, tmp_path: Path) -> None:
    with running():
        structlog.get_logger("mine").debug("below the level")
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_run_has_its_trace_and_its_traceback(process_log: io.StringIO, tmp_path: Path) -> None:
    with run_log("0f0f0f0f-0000-4000-8000-000000000001", pipeline="delays", seqs="1-3"):
        try:
            raise ValueError("a\x1b[31mb")
        except ValueError:
            logging.getLogger("user").exception("it broke")
    (line,) = logged(tmp_path, run_log_name("0f0f0f0f-0000-4000-8000-000000000001"))
    assert line.items() >= {"pipeline": "delays", "seqs": "1-3", "trace_id": "0f0f0f0f000040008000000000000001"}.items()
    assert "ValueError: a\x1b[31mb" in line["exception"]
    assert "\x1b" not in process_log.getvalue()


def test_a_mask_applies_to_every_line_of_every_log(process_log: io.StringIO, tmp_path: Path) -> None:
    def mask(logger: Any, name: str, event: Any) -> Any:
        return {key: str(value).replace("hunter2", "***") for key, value in event.items()}

    masks.append(mask)
    try:
        with running():
            structlog.get_logger("mine").info("connecting with hunter2")
            try:
                raise ValueError("hunter2 was refused")
            except ValueError:
                logging.getLogger("user").exception("no")
    finally:
        masks.remove(mask)
    text = process_log.getvalue() + (tmp_path / NAME.folder / NAME.file).read_text()
    assert "***" in text
    assert "hunter2" not in text


async def next_lines(source: AsyncIterator[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += (await anext(source)).splitlines()
    return found


async def test_a_follower_misses_no_line_while_files_rotate(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse, LogLimits(file_bytes=200, files=1000))
    written = [f"line {n}".encode() for n in range(500)]

    def write() -> None:
        for line in written:
            files.append(NAME, line + b"\n")

    async with aclosing(follow(tmp_path, NAME, 0)) as source:
        thread = Thread(target=write)
        thread.start()
        assert await next_lines(source, 500) == written
        thread.join()
        files.append(NAME, b"one more\n")
        assert await next_lines(source, 1) == [b"one more"]


async def test_following_continues_with_the_next_job(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, refuse)
    async with aclosing(follow(tmp_path, trigger_log(7, 0), 0, next_job_log(tmp_path))) as source:
        for job in (3, 4, 12):
            files.append(trigger_log(7, job), f"job {job}\n".encode())
            assert await next_lines(source, 1) == [f"job {job}".encode()]


async def test_logs_are_served_to_requests_with_a_token(tmp_path: Path) -> None:
    LogFiles(tmp_path, refuse).append(NAME, b"one\n")
    path = "/logs/triggers/7/3"
    passes = ReadTokens("the key")
    async with (
        serve_logs(LogServerConfig(tmp_path, "the key", "http://127.0.0.1:1", "host")) as url,
        httpx.AsyncClient(base_url=url, verify=False, timeout=60) as http,
    ):
        assert url.startswith("http://127.0.0.1:")

        async def ask(given: str, to: str = path, **query: str) -> httpx.Response:
            return await http.get(to, headers={"Authorization": f"Bearer {given}"}, params=query)

        good = passes.create(path, time.time())
        assert (await ask(good)).content == b"one\n"
        assert (await ask(good, after="4")).content == b""
        assert (await ask(good, after="-1")).status_code == 400
        for bad in ("x", "the-key", passes.create("/logs/triggers/8/3", time.time()), passes.create(path, time.time() - 3600)):
            assert (await ask(bad)).status_code == 401
        assert (await ask(ReadTokens("another key").create(path, time.time()))).status_code == 401
        for trick in ("/logs/triggers/7/..%2f3", "/logs/triggers/7/%D9%A3", "/logs/triggers/../7/3"):
            assert (await ask(passes.create(trick, time.time()), trick)).status_code in (401, 404)
        assert (await ask(passes.create("/logs/runs/..%2F..%2Fetc", time.time()), "/logs/runs/..%2F..%2Fetc")).content == b""


def test_a_process_without_an_event_loop_serves_its_logs(tmp_path: Path) -> None:

    LogFiles(tmp_path, refuse).append(run_log_name("r"), b"one\n")
    with serve_logs_in_thread(LogServerConfig(tmp_path, "k", "http://127.0.0.1:1", "host")) as url:
        headers = {"Authorization": f"Bearer {ReadTokens('k').create('/logs/runs/r', time.time())}"}
        assert httpx.get(f"{url}/logs/runs/r", headers=headers, trust_env=False, timeout=60).content == b"one\n"


def test_an_event_has_the_trace_of_its_message_or_a_deterministic_trace() -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert traceparent_in({"traceparent": given}) == given
    for bad in (None, "x", 3, given.upper(), "00-" + "0" * 32 + given[35:], given + "\n", "ff" + given[2:]):
        assert traceparent_in({"traceparent": bad}) is None
    assert traceparent_in([given]) is None
    assert event_trace("s", "i", given) == given
    made = event_trace("s", "i", None)
    assert traceparent_in({"traceparent": made}) == made == event_trace("s", "i", None)
    assert made != event_trace("s", "j", None)
    assert len(run_trace_id("not a uuid")) == 32

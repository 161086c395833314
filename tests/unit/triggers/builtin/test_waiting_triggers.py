"""Triggers that task runs wait for, on real files, a real HTTP service and the real clock."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from headrace.core.task_run import RUN_FAILED
from headrace.errors import ProjectError
from headrace.triggers.base import BaseTrigger
from headrace.triggers.builtin.file import FileTrigger
from headrace.triggers.builtin.folder_watcher import folders
from headrace.triggers.builtin.http_status import HttpStatusTrigger
from headrace.triggers.builtin.time import DateTimeTrigger, TimeDeltaTrigger
from headrace.triggers.event import TriggerEvent

PATIENCE = 20


async def fired(trigger: BaseTrigger) -> list[TriggerEvent]:
    async with asyncio.timeout(PATIENCE):
        return [event async for event in trigger.run()]


def put(path: Path, text: str = "{}") -> None:
    """As a file is to come: whole, by rename."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.rename(path)


def again(trigger: Any) -> Any:
    """The same trigger, as another process makes it of what was written down."""
    _, kwargs = trigger.serialize()
    return type(trigger)(**json.loads(json.dumps(kwargs)))


async def watched() -> None:
    """Return once somebody waits for a folder and the kernel watches it."""
    async with asyncio.timeout(PATIENCE):
        while folders()._task is None or folders()._again.is_set():
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("poll", [None, 0.01])
async def test_a_file_trigger_fires_for_an_existing_file_and_for_a_new_file(tmp_path: Path, poll: float | None) -> None:
    path = tmp_path / "answer.json"
    waiting = asyncio.create_task(fired(again(FileTrigger(path, poll=poll))))
    if poll is None:
        await watched()
    assert not waiting.done()
    put(path, "1234")
    (event,) = await waiting
    assert (event.payload["path"], event.payload["size"]) == (str(path), 4)
    assert await fired(FileTrigger(path)) == [event]


async def test_a_file_trigger_waits_for_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    path = tmp_path / "day" / "hour" / "answer.json"
    waiting = asyncio.create_task(fired(FileTrigger(path)))
    await watched()
    path.parent.mkdir(parents=True)
    await asyncio.sleep(0.1)
    put(path)
    assert len(await waiting) == 1


async def test_names_with_invalid_text_do_not_affect_file_triggers_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    waiting = asyncio.create_task(fired(FileTrigger(path)))
    await watched()
    for number in range(3):
        (tmp_path / os.fsdecode(b"%d\xff" % number)).touch()
        await asyncio.sleep(0.1)
    put(path)
    assert len(await waiting) == 1


async def test_one_thread_serves_file_triggers_in_many_folders(tmp_path: Path) -> None:
    paths = [tmp_path / str(n % 60) / f"{n}.json" for n in range(120)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
    waiting = [asyncio.create_task(fired(FileTrigger(path))) for path in paths]
    await watched()
    for path in paths:
        put(path)
    found = await asyncio.gather(*waiting)
    assert [events[0].payload["path"] for events in found] == [str(path) for path in paths]


async def test_a_file_trigger_continues_after_its_folder_is_recreated(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    waiting = asyncio.create_task(fired(FileTrigger(folder / "answer")))
    await watched()
    folder.rmdir()
    await asyncio.sleep(0.2)
    folder.mkdir()
    put(folder / "answer")
    assert len(await waiting) == 1


def test_a_relative_path_is_resolved_where_the_trigger_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileTrigger("answer").serialize()[1]["path"] == os.fspath(tmp_path / "answer")


@dataclass
class Service:
    """An HTTP service that gives these answers, the last for ever; `asked` is set with each question."""

    answers: list[tuple[int, str]]
    seen: list[str | None] = field(default_factory=list)
    asked: Event = field(default_factory=Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/jobs/7"


@contextmanager
def serving(*answers: tuple[int, str]) -> Iterator[Service]:
    service = Service(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.seen.append(self.headers.get("Authorization"))
            status, body = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
            service.asked.set()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


async def test_a_service_is_polled_until_it_has_the_expected_status() -> None:
    with serving((404, "no"), (503, "busy"), (200, '{"rows": 3}')) as service:
        (event,) = await fired(again(HttpStatusTrigger(service.url, interval=0.01)))
        assert event.payload == {"url": service.url, "status": 200, "body": {"rows": 3}}
        assert len(service.seen) == 3


async def test_a_service_is_polled_until_its_response_matches_or_reports_a_failure() -> None:
    states: dict[str, Any] = {"match": {"state": ["done"]}, "fail": {"state": ["killed"]}, "interval": 0.01}
    with serving((200, '{"state": "running"}'), (200, "[]"), (200, '{"state": "done"}')) as service:
        (event,) = await fired(again(HttpStatusTrigger(service.url, **states)))
        assert event.payload["body"] == {"state": "done"}
    with serving((200, '{"state": "running"}'), (200, '{"state": "killed"}')) as service:
        (event,) = await fired(HttpStatusTrigger(service.url, **states))
        assert event.type == RUN_FAILED


async def test_an_unavailable_service_is_polled_again() -> None:
    with serving((200, "there")) as service:
        url = service.url
    waiting = asyncio.create_task(fired(HttpStatusTrigger(url, interval=0.01)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(("login", "sent"), [("", "Bearer secret"), ("me", "Basic bWU6c2VjcmV0")])
async def test_a_service_is_polled_with_the_password_of_its_connection(monkeypatch: pytest.MonkeyPatch, login: str, sent: str) -> None:
    monkeypatch.setenv("HEADRACE_CONNECTION_CLUSTER", f"http://{login}:secret@somewhere")
    with serving((200, "x" * 2_000_000)) as service:
        (event,) = await fired(HttpStatusTrigger(service.url, connection="cluster", interval=0.01))
        assert service.seen == [sent]
        assert len(event.payload["body"]) == 1024 * 1024, "a body without end is cut"
        assert "secret" not in json.dumps(HttpStatusTrigger(service.url, connection="cluster").serialize())


async def test_past_times_fire_immediately_and_future_times_when_due() -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    (event,) = await fired(again(DateTimeTrigger(past)))
    assert event.payload == {"moment": "2020-01-01T00:00:00.000000Z"}
    begun = datetime.now(UTC)
    soon = TimeDeltaTrigger(timedelta(milliseconds=50))
    classpath, kwargs = soon.serialize()
    assert classpath.endswith(".DateTimeTrigger")
    await fired(DateTimeTrigger(**kwargs))
    assert datetime.now(UTC) - begun >= timedelta(milliseconds=50)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: HttpStatusTrigger("ftp://there"),
        lambda: HttpStatusTrigger("http://there", interval=0),
        lambda: FileTrigger("there", poll=-1),
        lambda: DateTimeTrigger("tomorrow"),
        lambda: DateTimeTrigger("2026-11-21T09:00:00"),
    ],
)
def test_invalid_arguments_are_rejected_with_a_hint(wrong: Any) -> None:
    with pytest.raises(ProjectError) as refused:
        wrong()
    assert refused.value.hint


async def test_headers_are_not_sent_to_another_origin() -> None:
    """The service redirects to itself, then to another port: what authenticates goes along only once."""
    asked: list[tuple[str, str | None, str | None]] = []

    def listening(name: str, target: Callable[[str], str | None]) -> ThreadingHTTPServer:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((name + self.path, self.headers.get("X-Api-Key"), self.headers.get("X-Other")))
                there = target(self.path)
                self.send_response(200 if there is None else 307)
                if there is not None:
                    self.send_header("Location", there)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return server

    with listening("other", lambda _: None) as other:
        elsewhere = f"http://127.0.0.1:{other.server_port}/end"
        with listening("own", lambda path: "/again" if path == "/begin" else elsewhere) as own:
            url = f"http://127.0.0.1:{own.server_port}/begin"
            await fired(HttpStatusTrigger(url, headers={"X-Api-Key": "secret", "x-other": "1"}))
            own.shutdown()
        other.shutdown()
    assert asked == [("own/begin", "secret", "1"), ("own/again", "secret", "1"), ("other/end", None, None)]

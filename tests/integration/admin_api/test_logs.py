"""The logs of triggers and runs over the admin API: from the log folder, or from the process that writes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from headrace.client.logs import LogClient
from headrace.logs.names import run_log_name, trigger_log
from headrace.logs.query import END, JOB, START, LogQuery
from headrace.logs.server import LogServerConfig
from headrace.logs.server import serve_logs as serving_logs
from headrace.logs.writer import LogFiles
from headrace.store import Store
from headrace.wire.control.jobs import CompleteJob
from support.processes.admin_scene import KEY, Scene, at_work, opened, run, serving

UNITED = "legs.united"


def refuse(error: OSError) -> None:
    raise error


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def files(root: Path) -> LogFiles:
    return LogFiles(root, refuse)


@pytest.fixture
async def scene(store: Store, root: Path) -> AsyncIterator[Scene]:
    with serving(store, logs=root) as url:
        async with at_work(url) as made:
            yield made


@pytest.fixture
async def http(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=scene.url, timeout=60, trust_env=False, verify=False) as client:
        yield client


@asynccontextmanager
async def following(http: httpx.AsyncClient, path: str, **params: str) -> AsyncIterator[AsyncIterator[str]]:
    async with asyncio.timeout(120), http.stream("GET", path, params={"follow": "1", **params}) as response:
        assert response.status_code == 200
        yield response.aiter_lines()


async def problem(http: httpx.AsyncClient, path: str, status: int) -> str:
    answer = await http.get(path)
    assert answer.status_code == status, answer.text
    return f"{answer.json()['detail']} {answer.json().get('hint', '')}"


async def test_a_log_is_read_page_by_page(scene: Scene, http: httpx.AsyncClient, files: LogFiles) -> None:
    name = trigger_log(scene.triggers[UNITED], 1)
    lines = [b'{"event":"%d"}\n' % n for n in range(50_000)]
    for line in lines:
        files.append(name, line)
    found, after = b"", "0"
    for _ in range(10):
        answer = await http.get(f"/api/v1/logs/triggers/{UNITED}", params={"after": after})
        assert (answer.headers[START], answer.headers[JOB]) == (after, "1")
        found, after = found + answer.content, answer.headers[END]
    assert found == b"".join(lines)
    assert (await http.get(f"/api/v1/logs/triggers/{name.trigger_id}", params={"last": "2"})).content == b"".join(lines[-2:])
    assert await asyncio.to_thread(lambda: list(LogClient(scene.url).trigger(UNITED, None, LogQuery(after=0)))) == [
        line.decode().rstrip() for line in lines
    ]


async def test_a_log_is_followed_into_the_next_job(scene: Scene, http: httpx.AsyncClient, files: LogFiles) -> None:
    trigger = scene.triggers[UNITED]
    files.append(trigger_log(trigger, 1), b"first\n")
    async with following(http, f"/api/v1/logs/triggers/{UNITED}") as lines:
        assert await anext(lines) == "first"
        for job in (1, 1, 2, 5):
            files.append(trigger_log(trigger, job), b"of job %d\n" % job)
            assert await anext(lines) == f"of job {job}"


async def test_the_log_of_a_single_job_is_read(scene: Scene, http: httpx.AsyncClient, files: LogFiles) -> None:
    for job in (1, 2):
        files.append(trigger_log(scene.triggers[UNITED], job), b"of job %d\n" % job)
    assert (await http.get(f"/api/v1/logs/triggers/{UNITED}", params={"job": "2"})).text == "of job 2\n"
    assert "job" in await problem(http, f"/api/v1/logs/triggers/{UNITED}?job=99", 404)


async def test_a_prefix_of_its_id_identifies_a_run(scene: Scene, http: httpx.AsyncClient, files: LogFiles) -> None:
    await scene.report(run(1), run(2), run(12))
    files.append(run_log_name("flights/knock_on_delay/2"), b"two\n")
    assert (await http.get("/api/v1/logs/runs/flights%2Fknock_on_delay%2F2")).text == "two\n"
    assert "Give more" in await problem(http, "/api/v1/logs/runs/flights%2Fkn", 409)
    assert "no run" in await problem(http, "/api/v1/logs/runs/nothing", 404)
    assert "no run" in await problem(http, "/api/v1/logs/runs/%25", 404)


@pytest.mark.slow
@pytest.mark.parametrize("afar", [False, True])
async def test_following_a_run_ends_after_its_last_line(store: Store, tmp_path: Path, afar: bool) -> None:
    root = tmp_path / "elsewhere" if afar else tmp_path / "logs"
    files, name = LogFiles(root, refuse), run_log_name("flights/knock_on_delay/1")
    with serving(store, logs=tmp_path / "logs") as url:
        async with (
            serving_logs(LogServerConfig(root, KEY, "http://127.0.0.1:1", "wheel-1")) as log_url,
            at_work(url, log_url=log_url) as scene,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
        ):
            await scene.report(run(1, state="running"))
            files.append(name, b"at work\n")
            async with following(http, "/api/v1/logs/runs/flights%2Fknock_on_delay%2F1") as lines:
                assert await anext(lines) == "at work"
                await scene.report(run(1))
                files.append(name, b"last words\n")
                assert [line async for line in lines] == ["last words"]
            async with following(http, "/api/v1/logs/runs/flights%2Fknock_on_delay%2F1") as lines:
                assert [line async for line in lines] == ["at work", "last words"]


@pytest.mark.parametrize("afar", [False, True])
async def test_a_client_disconnect_from_a_log_is_no_error(
    store: Store, tmp_path: Path, afar: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "elsewhere" if afar else tmp_path / "logs"
    with serving(store, logs=tmp_path / "logs") as url:
        async with (
            serving_logs(LogServerConfig(root, KEY, "http://127.0.0.1:1", "wheel-1")) as log_url,
            at_work(url, log_url=log_url) as scene,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
        ):
            await scene.report(run(1, state="running"))
            LogFiles(root, refuse).append(run_log_name("flights/knock_on_delay/1"), b"at work\n")
            for _ in range(5):
                async with following(http, "/api/v1/logs/runs/flights%2Fknock_on_delay%2F1") as lines:
                    assert await anext(lines) == "at work"
    assert "Traceback" not in capfd.readouterr().err


async def test_the_error_for_an_unknown_trigger_suggests_similar_names(scene: Scene, http: httpx.AsyncClient) -> None:
    assert "Did you mean legs.united" in await problem(http, "/api/v1/logs/triggers/legs.untied", 404)


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "trigger-1-job-1.log", "..", "1%00", "%FF", "9" * 400, "-1"])
async def test_a_name_with_a_path_does_not_leave_the_log_folder(scene: Scene, http: httpx.AsyncClient, root: Path, name: str) -> None:
    (root / "triggers" / "1").mkdir(parents=True)
    (root.parent / "secret").write_text("secret\n")
    for kind in ("triggers", "runs"):
        answer = await http.get(f"/api/v1/logs/{kind}/{name}")
        assert answer.status_code in (404, 422), answer.text
        assert "secret" not in answer.text


async def test_invalid_query_parameters_are_refused(scene: Scene, http: httpx.AsyncClient) -> None:
    for query in ("after=-1", "after=x", f"after={2**70}", "last=-1", "job=0", "job=../1", "follow=maybe"):
        assert (await http.get(f"/api/v1/logs/triggers/{UNITED}?{query}")).status_code == 422


async def test_a_running_process_serves_its_log_from_another_host(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    files = LogFiles(elsewhere, refuse)
    with serving(store, logs=tmp_path / "logs") as url:
        async with (
            serving_logs(LogServerConfig(elsewhere, KEY, "http://127.0.0.1:1", "wheel-1")) as log_url,
            at_work(url, log_url=log_url) as scene,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
        ):
            path = f"/api/v1/logs/triggers/{UNITED}"
            name = trigger_log(scene.triggers[UNITED], 1)
            assert (await http.get(path)).text == ""
            async with following(http, path) as lines:
                files.append(name, b"from afar\n")
                assert await anext(lines) == "from afar"
            answer = await http.get(path, params={"after": "5"})
            assert (answer.text, answer.headers[END], answer.headers[JOB]) == ("afar\n", "10", "1")
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http:
            said = await problem(http, path, 503)
            assert "wheel-1" in said
            assert "log_dir" in said
            async with at_work(url) as scene:
                await scene.triggerer.complete(CompleteJob(state="failed"))
            assert "has ended (failed)" in await problem(http, f"{path}?job=1", 404)
            (tmp_path / "logs").symlink_to(elsewhere)  # a folder that both hosts share
            assert (await http.get(f"{path}?job=1")).text == "from afar\n"


async def test_the_api_server_stops_while_a_client_follows_a_log(store: Store, root: Path, files: LogFiles) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(serving(store, logs=root))
        async with (
            at_work(url) as scene,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http,
        ):
            files.append(trigger_log(scene.triggers[UNITED], 1), b"one\n")
            async with following(http, f"/api/v1/logs/triggers/{UNITED}") as lines:
                assert await anext(lines) == "one"
                stopping = asyncio.create_task(asyncio.to_thread(stack.close))
                assert [line async for line in lines] == []
                await stopping

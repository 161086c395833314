"""Two ends of a socket: calls are answered, errors arrive with their class, and a sender waits for a slow receiver."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.triggerer.ipc.api_calls import ApiCalls, failed
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Call, CallFailed, CallSucceeded, Report
from headrace.triggerer.supervisor.api_proxy import ApiProxy


@asynccontextmanager
async def links() -> AsyncIterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    ends = await Channel.open(one), await Channel.open(other)
    try:
        async with asyncio.timeout(120):
            yield ends
    finally:
        for end in ends:
            end.close()


class Api:
    """An api that answers with the path, or raises."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, str, bytes | None]] = []

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        self.asked.append((method, path, content))
        if self.error is not None:
            raise self.error
        return path.encode()


async def ask(calls: ApiCalls, relay: ApiProxy, runner: Channel, supervisor: Channel, path: str) -> bytes:
    asking = asyncio.create_task(calls.call("POST", path, b"{}"))
    call = await supervisor.receive()
    assert isinstance(call, Call)
    await relay.forward(call)
    answer = await runner.receive()
    assert isinstance(answer, CallSucceeded | CallFailed)
    calls.complete(answer)
    return await asking


async def test_a_call_is_answered() -> None:
    async with links() as (runner, supervisor):
        api = Api()
        calls, relay = ApiCalls(runner), ApiProxy(api, supervisor)
        assert await ask(calls, relay, runner, supervisor, "/execution/triggers/events") == b"/execution/triggers/events"
        assert api.asked == [("POST", "/execution/triggers/events", b"{}")]
        await calls.wait_idle()


@pytest.mark.parametrize("kind", [ApiUnavailable, ApiRefused, Fenced, ApiError])
async def test_an_error_arrives_with_its_class(kind: type[ApiError]) -> None:
    error = kind("no", hint="do this", status=409, problem="fenced")
    if isinstance(error, ApiUnavailable):
        error.retry_after = 7.0
    async with links() as (runner, supervisor):
        with pytest.raises(kind, match="no") as raised:
            await ask(ApiCalls(runner), ApiProxy(Api(error), supervisor), runner, supervisor, "/execution/x")
    assert type(raised.value) is kind
    assert (raised.value.hint, raised.value.status, raised.value.problem) == ("do this", 409, "fenced")
    assert getattr(raised.value, "retry_after", None) == (7.0 if kind is ApiUnavailable else None)


@pytest.mark.parametrize(
    "path",
    [
        "/execution/jobs",
        "/execution/jobs/1/complete",
        "/api/v1/audit",
        "/execution/../api/v1/audit",
        "/execution/%6aobs/1/complete",
        "/execution/x/%2e%2e/jobs/1/complete",
        "/execution/x/.%2E/jobs",
    ],
)
async def test_a_runner_can_call_only_the_execution_api_without_jobs(path: str) -> None:
    async with links() as (runner, supervisor):
        api = Api()
        with pytest.raises(ApiRefused):
            await ask(ApiCalls(runner), ApiProxy(api, supervisor), runner, supervisor, path)
        assert api.asked == []


async def test_a_sender_waits_for_a_slow_reader() -> None:
    async with links() as (runner, supervisor):
        sent = 0

        async def send() -> None:
            nonlocal sent
            for sent in range(1, 101):  # noqa: B007
                await runner.send(Report(bytes(1024 * 1024)))

        sending = asyncio.create_task(send())
        for _ in range(200):
            await asyncio.sleep(0)
        assert sent < 20
        for _ in range(100):
            await supervisor.receive()
        await sending


async def test_receive_ends_when_the_peer_closes() -> None:
    async with links() as (runner, supervisor):
        await runner.send(Report(b"last words"))
        runner.close()
        assert await supervisor.receive() == Report(b"last words")
        assert await supervisor.receive() is None
        await supervisor.send(CallSucceeded(1, b""))


def test_the_most_specific_error_class_is_named() -> None:
    assert failed(1, Fenced("x")).kind == "Fenced"
    assert failed(1, ApiRefused("x")).kind == "ApiRefused"

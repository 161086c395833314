"""Answers of SQS that the server of the broker tests does not give: a rejected request, and what it says of single messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace import SQS
from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.sources.dead_letters.cloud.sqs import failure_of
from headrace.sources.dead_letters.sender import make_sender
from support.processes.broker_server import connection_variable
from support.sources.dead_letters import copy_of

MAX_REQUEST_BYTES = 3_000

Answer = tuple[int, str, dict[str, Any]]
"""The status, the code for clients of the query protocol, and the body."""


class Service:
    """Answers the requests of a sender. It rejects requests of more than MAX_REQUEST_BYTES, and fails at messages with these bodies."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, code, body = service.answer(self.headers["X-Amz-Target"], request)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(content)))
                if code:
                    self.send_header("x-amzn-query-error", f"{code};Sender")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, target: str, request: dict[str, Any]) -> Answer:
        if target.endswith("GetQueueUrl"):
            return 200, "", {"QueueUrl": f"http://{self.address}/1/dead"}
        bodies = [entry["MessageBody"] for entry in request["Entries"]]
        self.requests.append(bodies)
        if sum(map(len, bodies)) > MAX_REQUEST_BYTES:
            error = {"__type": "com.amazonaws.sqs#BatchRequestTooLong", "message": "too long"}
            return 400, "AWS.SimpleQueueService.BatchRequestTooLong", error
        if "away" in bodies:
            return 503, "", {"__type": "com.amazonaws.sqs#ServiceUnavailable", "message": "busy"}
        stored = [entry for entry in request["Entries"] if entry["MessageBody"] != "unconfirmed"]
        return 200, "", {"Successful": [{"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "m"} for entry in stored], "Failed": []}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service()
    monkeypatch.setenv(connection_variable("sqs"), f"sqs://key:secret@{service.address}?region=eu-west-1&scheme=http")
    yield service
    service.close()


async def send(*bodies: str, queue: str = "dead") -> list[type[HeadraceError] | None]:
    """Send copies with these bodies, and return the class of each result. The lane of a copy is the first letter of its body."""
    sender = make_sender(SQS("orders", dead_letter_queue=queue))
    try:
        results = await sender.send([copy_of(number, body.encode(), lane=body[:1]) for number, body in enumerate(bodies)])
    finally:
        await sender.aclose()
    return [None if result is None else type(result) for result in results]


async def test_the_messages_of_a_rejected_request_are_sent_one_by_one(service: Service) -> None:
    large, small = "x" * 4_000, ["y" * 500] * 3
    assert await send(*small, large, *small) == [None] * 3 + [CopyRejected] + [None] * 3
    assert [len(request) for request in service.requests] == [7] + [1] * 7


async def test_nothing_is_sent_after_a_message_that_the_service_takes_later(service: Service) -> None:
    large = "x" * 4_000
    assert await send("a", large, "away", "b", "c") == [None, CopyRejected] + [StreamError] * 3
    assert service.requests[1:] == [["a"], [large], ["away"]]


async def test_a_message_that_the_answer_does_not_name_is_not_confirmed(service: Service) -> None:
    assert await send("a", "unconfirmed", "b") == [None, StreamError, None]
    assert service.requests == [["a", "unconfirmed", "b"]]


async def test_a_request_to_a_fifo_queue_has_one_message_of_a_group(service: Service) -> None:
    assert await send("a1", "b1", "b2", "c1", "a2", "a3", queue="dead.fifo") == [None] * 6
    assert service.requests == [["a1", "b1"], ["b2", "c1", "a2"], ["a3"]]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        ({"Code": "InvalidMessageContents", "SenderFault": True}, CopyRejected),
        ({"Code": "InvalidParameterValue", "SenderFault": True, "Message": "Message must be shorter than 1024 bytes."}, CopyRejected),
        ({"Code": "InternalError", "SenderFault": False}, StreamError),
        ({"Code": "RequestThrottled", "SenderFault": True}, StreamError),
        ({"Code": "KmsInvalidState", "SenderFault": True}, StreamError),
        ({"Code": "AccessDenied", "SenderFault": True}, UpstreamError),
        ({"Code": "KmsAccessDenied", "SenderFault": True}, UpstreamError),
        ({}, StreamError),
    ],
)
def test_a_failed_entry_is_rejected_only_for_a_fault_of_its_message(failure: dict[str, Any], kind: type[HeadraceError]) -> None:
    error = failure_of("dead", failure)
    assert type(error) is kind
    assert str(failure.get("Code", "")) in str(error)
    assert (error.hint is not None) == (kind is UpstreamError)

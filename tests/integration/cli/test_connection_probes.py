"""`headrace connections test` connects once and describes the system, or says why it cannot."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import make_url, select

from headrace.core.connection import parse_connection
from headrace.errors import StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.store.tables.control import jobs
from support.processes.execution_api import Api
from support.processes.postgres import database_of

AUTHORIZED = f"Basic {b64encode(b'ada:swordfish').decode()}"


class Service(BaseHTTPRequestHandler):
    """Accepts the login `ada` with the password `swordfish`."""

    def do_HEAD(self) -> None:
        self.send_response(204 if self.headers["Authorization"] == AUTHORIZED else 401)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that refuses connections."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def test_a_stored_connection_is_tested_and_its_job_ends(api: Api, port: int) -> None:
    assert api.run("connections", "set", "shop", given=f"http://ada:swordfish@127.0.0.1:{port}").returncode == 0
    tested = api.run("connections", "test", "shop")
    assert (tested.returncode, f"http://127.0.0.1:{port}: status 204" in tested.stdout) == (0, True), tested.stderr
    assert api.run("connections", "set", "shop", given=f"http://ada:wrong@127.0.0.1:{port}").returncode == 0
    refused = api.run("connections", "test", "shop")
    assert (refused.returncode, "refuses the credentials" in refused.stderr) == (2, True)
    assert "Traceback" not in refused.stderr
    with api.store.reading() as connection:
        assert connection.execute(select(jobs.c.state)).scalars().all() == ["succeeded", "succeeded"]


def test_attempts_of_a_client_library_are_not_printed_before_the_error(api: Api) -> None:
    with silent_port() as refusing:
        assert api.run("connections", "set", "cluster", given=f"kafka://127.0.0.1:{refusing}").returncode == 0
        away = api.run("connections", "test", "cluster")
    assert [line.partition(":")[0] for line in away.stderr.splitlines()] == ["error", "hint"], away.stderr


def test_errors_say_what_to_do(api: Api) -> None:
    missing = api.run("connections", "test", "nothing")
    assert (missing.returncode, "nothing" in missing.stderr, "Traceback" in missing.stderr) == (2, True, False)
    keyless = api.run("connections", "test", "nothing", key="")
    assert (keyless.returncode, "HEADRACE_KEY" in keyless.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("ftp://files.example", UpstreamError, "no test for the kind 'ftp'"),
        ('{"kind": "http"}', UpstreamError, "has no host"),
        ('{"kind": "kafka"}', UpstreamError, "no address"),
        ("kafka://broker.example:9092?security.protocol=NONE", UpstreamError, "cannot be used"),
    ],
)
def test_a_connection_that_cannot_be_tried_is_refused(text: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        probe_connection(parse_connection("x", text))


@pytest.mark.parametrize(("kind", "says"), [("http", "does not answer"), ("kafka", "cannot be reached"), ("postgresql", "does not answer")])
def test_a_system_that_does_not_answer_is_named(kind: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka.client.PROBE_SECONDS", 1.0)
    with silent_port() as port, pytest.raises(StreamError, match=says) as caught:
        probe_connection(parse_connection("x", f"{kind}://127.0.0.1:{port}"))
    assert caught.value.hint


def test_a_database_is_described_or_refuses_the_credentials(tmp_path: Path) -> None:
    url = make_url(database_of(tmp_path)).set(drivername="postgresql")
    described = probe_connection(parse_connection("x", url.render_as_string(hide_password=False)))
    assert f"database {url.database}, role {url.username}, wal_level " in described
    with pytest.raises(UpstreamError, match="failed") as caught:
        probe_connection(parse_connection("x", url.set(database="missing").render_as_string(hide_password=False)))
    assert caught.value.hint

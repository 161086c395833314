"""The client of a registry on a server that gives wrong answers. Its answers on a real registry are in `tests/brokers/kafka`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import MalformedEvent, StreamError, UpstreamError
from headrace.sources.schema_registry import registry as module
from headrace.sources.schema_registry.registry import SchemaRegistry
from headrace.sources.schema_registry.wire_format import wire_format_decoder

UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})
LONG = (200, {"schema": '"long"'})


class FaultyServer:
    """Gives the answers of `answers` by path, and records the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"/registry/schemas/types": (200, ["AVRO"])}
        self.encoding: str | None = None
        self.requests: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # else each answer waits for a delayed acknowledgement of its headers

            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers.get("Authorization")))
                status, body = outer.answers.get(self.path, (404, "no such page"))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if outer.encoding is not None:
                    self.send_header("Content-Encoding", outer.encoding)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Write no log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://ada:secret@127.0.0.1:{self._server.server_port}/registry"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer()
    yield server
    server.close()


@pytest.fixture
def registry(server: FaultyServer) -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry(parse_connection("registry", server.url))
    yield registry
    registry.close()


def test_a_schema_is_requested_once_with_the_credentials(server: FaultyServer, registry: SchemaRegistry) -> None:
    server.answers["/registry/schemas/ids/5"] = LONG
    decode = wire_format_decoder(registry)
    assert [decode(b"\x00\x00\x00\x00\x05" + bytes([number * 2]), ()).data for number in range(3)] == [b"0", b"1", b"2"]
    assert server.requests == [("/registry/schemas/ids/5", "Basic YWRhOnNlY3JldA==")]


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x05", b"\x01\x00\x00\x00\x05\x02", b'{"n":1}'])
def test_a_value_without_the_header_is_malformed(registry: SchemaRegistry, value: bytes) -> None:
    with pytest.raises(MalformedEvent, match="Not in Confluent's wire format"):
        wire_format_decoder(registry)(value, ())


def test_a_tombstone_is_null(registry: SchemaRegistry) -> None:
    assert wire_format_decoder(registry)(None, ()).data == b"null"


def test_an_unknown_schema_is_requested_once_for_a_while(server: FaultyServer, registry: SchemaRegistry) -> None:
    server.answers["/registry/schemas/ids/5"] = UNKNOWN
    for _ in range(3):
        with pytest.raises(MalformedEvent, match="Schema 5 is unknown"):
            registry.decoder(5)
    assert len(server.requests) == 1


def test_an_unknown_schema_is_requested_again_after_a_while(
    server: FaultyServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_SECONDS", -1.0)
    server.answers["/registry/schemas/ids/5"] = UNKNOWN
    with pytest.raises(MalformedEvent, match="Schema 5 is unknown"):
        registry.decoder(5)
    server.answers["/registry/schemas/ids/5"] = (503, b"")
    with pytest.raises(StreamError):
        registry.decoder(5)
    server.answers["/registry/schemas/ids/5"] = LONG
    assert registry.decoder(5)(b"\x02") == b"1"
    assert registry.decoder(5)(b"\x04") == b"2"
    assert len(server.requests) == 3


def test_a_client_for_stored_values_remembers_no_schema_as_unknown(server: FaultyServer) -> None:
    registry = SchemaRegistry(parse_connection("registry", server.url), unknown_seconds=0)
    server.answers["/registry/schemas/ids/5"] = UNKNOWN
    with pytest.raises(MalformedEvent, match="Schema 5 is unknown"):
        registry.decoder(5)
    server.answers["/registry/schemas/ids/5"] = LONG
    assert registry.decoder(5)(b"\x02") == b"1"
    registry.close()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((401, {}), UpstreamError, "refuses the credentials: status 401"),
        ((403, b"<html>"), UpstreamError, "refuses the credentials: status 403"),
        ((404, b"<html>"), UpstreamError, "no such path"),
        ((404, {"error_code": 404}), UpstreamError, "no such path"),
        ((404, b""), UpstreamError, "no such path"),
        ((404, {"error_code": "40403"}), UpstreamError, "no such path"),
        ((200, [1]), UpstreamError, "is not a schema registry: .*`object`"),
        ((200, b"<html>"), UpstreamError, "is not a schema registry: .*malformed"),
        ((200, b""), UpstreamError, "is not a schema registry: "),
        ((200, b'{"schema": "\xff"}'), UpstreamError, "is not a schema registry: "),
        ((200, b"[" * 100_000), UpstreamError, "is not a schema registry: "),
        ((200, {}), UpstreamError, "is not a schema registry: .*`schema`"),
        ((200, {"schema": 7}), UpstreamError, r"is not a schema registry: .*`\$.schema`"),
        ((200, {"schema": "", "references": [{"name": "Line"}]}), UpstreamError, "is not a schema registry: .*`subject`"),
        ((200, {"schema": "", "references": 7}), UpstreamError, "is not a schema registry: .*`array"),
        ((429, {}), StreamError, "status 429"),
        ((503, b""), StreamError, "status 503"),
        ((302, b""), StreamError, "status 302"),
        ((200, {"schema": "{"}), MalformedEvent, "cannot be used"),
        ((200, {"schema": "", "schemaType": "XML"}), MalformedEvent, "unknown type 'XML'"),
    ],
)
def test_a_wrong_answer_is_named(
    server: FaultyServer, registry: SchemaRegistry, answer: tuple[int, Any], error: type[Exception], text: str
) -> None:
    server.answers["/registry/schemas/ids/5"] = answer
    with pytest.raises(error, match=text):
        registry.decoder(5)
    if error is not MalformedEvent:  # it is not remembered
        server.answers["/registry/schemas/ids/5"] = LONG
        assert registry.decoder(5)(b"\x02") == b"1"


def test_references_that_name_each_other_end(server: FaultyServer, registry: SchemaRegistry) -> None:
    line = {"schema": '{"type":"record","name":"Line","fields":[]}', "references": [{"name": "Line", "subject": "a/b", "version": 1}]}
    server.answers["/registry/schemas/ids/5"] = (200, {"schema": '"Line"', "references": line["references"]})
    server.answers["/registry/subjects/a%2Fb/versions/1"] = (200, line)
    assert registry.decoder(5)(b"") == b"{}"


def test_referenced_schemas_come_first(server: FaultyServer, registry: SchemaRegistry) -> None:
    def reference(number: int) -> dict[str, Any]:
        return {"name": f"R{number}", "subject": f"r{number}", "version": 1}

    fields = [{"name": "next", "type": ["null", "R1"]}, {"name": "last", "type": ["null", "R2"]}]
    record = {"type": "record", "name": "R0", "fields": fields}
    server.answers["/registry/schemas/ids/5"] = (200, {"schema": json.dumps(record), "references": [reference(1), reference(2)]})
    inner = {"type": "record", "name": "R1", "fields": [{"name": "last", "type": "R2"}]}
    server.answers["/registry/subjects/r1/versions/1"] = (200, {"schema": json.dumps(inner), "references": [reference(2)]})
    last = {"type": "record", "name": "R2", "fields": []}
    server.answers["/registry/subjects/r2/versions/1"] = (200, {"schema": json.dumps(last)})
    assert json.loads(registry.decoder(5)(b"\x02\x02")) == {"next": {"last": {}}, "last": {}}


def test_the_number_and_depth_of_references_have_a_limit(server: FaultyServer, registry: SchemaRegistry) -> None:
    for number in range(module.MAX_REFERENCES + 1):
        references = [{"name": f"R{number + 1}", "subject": f"r{number + 1}", "version": 1}]
        server.answers[f"/registry/subjects/r{number}/versions/1"] = (200, {"schema": "", "references": references})
    server.answers["/registry/schemas/ids/5"] = server.answers["/registry/subjects/r0/versions/1"]
    with pytest.raises(UpstreamError, match="more than 1,000 references"):
        registry.decoder(5)


def test_the_size_of_an_answer_has_a_limit(server: FaultyServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1_000)
    server.answers["/registry/schemas/ids/5"] = (200, {"schema": "x" * 1_000})
    with pytest.raises(UpstreamError, match="more than 1,000 bytes"):
        registry.decoder(5)


def test_an_answer_with_a_wrong_encoding_is_a_stream_error(server: FaultyServer, registry: SchemaRegistry) -> None:
    server.encoding = "gzip"
    server.answers["/registry/schemas/ids/5"] = LONG
    with pytest.raises(StreamError, match="does not answer"):
        registry.decoder(5)


def test_the_number_of_decoders_has_a_limit(server: FaultyServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCHEMAS", 2)
    for number in range(4):
        server.answers[f"/registry/schemas/ids/{number}"] = LONG
        registry.decoder(number)
    registry.decoder(3)
    registry.decoder(0)
    assert [path.rpartition("/")[2] for path, _ in server.requests] == ["0", "1", "2", "3", "0"]


def test_a_registry_that_is_away_is_a_stream_error() -> None:
    registry = SchemaRegistry(parse_connection("registry", "http://127.0.0.1:9/"))
    with pytest.raises(StreamError, match="'registry' does not answer"):
        registry.check()
    registry.close()


def test_another_service_is_no_registry(server: FaultyServer, registry: SchemaRegistry) -> None:
    assert registry.check() == "schema registry with AVRO"
    answers: list[Any] = [{"name": "shop"}, [{}]]
    for answer in answers:
        server.answers["/registry/schemas/types"] = (200, answer)
        with pytest.raises(UpstreamError, match="is not a schema registry: its answer has another form"):
            registry.check()


@pytest.mark.parametrize("text", ["kafka://broker.example", "http:///path"])
def test_another_connection_is_refused(text: str) -> None:
    with pytest.raises(UpstreamError, match="cannot be a schema registry"):
        SchemaRegistry(parse_connection("registry", text))

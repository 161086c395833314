"""Messages, servers that refuse, and connections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.mosquitto import MosquittoServer, new_authority, require, set_passwords
from support.processes.ports import free_port
from support.sources.mqtt import MakeSession, MqttSession
from support.sources.reading import items_of, numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt")]


async def first_error(session: MqttSession, **arguments: Any) -> HeadraceError:
    """Open an upstream that cannot be read, and return its error."""
    with pytest.raises(HeadraceError) as raised:
        async with reading(session.producer(**arguments)) as stream:
            await stream.take(1)
    assert raised.value.hint
    return raised.value


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoServer]:
    """Return a server that knows two users. One of them may read nothing."""
    require()
    folder = tmp_path_factory.mktemp("guarded")
    set_passwords(folder / "passwords", {"ada": "s3cret", "eve": "s3cret"})
    (folder / "acl").write_text("user ada\ntopic readwrite #\nuser eve\ntopic write none\n")
    (folder / "acl").chmod(0o600)
    server = MosquittoServer(f"allow_anonymous false\npassword_file {folder}/passwords\nacl_file {folder}/acl", login=("ada", "s3cret"))
    yield server
    server.close()


async def test_a_byte_order_mark_and_many_user_properties_stop_nothing(session: MqttSession) -> None:
    session.send(numbers(0, 1))
    session.send(numbers(1, 2), UserProperty=[("note", "\ufeffhello")], ContentType="\ufefftext", ResponseTopic="\ufeffanswers")
    session.send(numbers(2, 3), UserProperty=[("", "")] * 10_001)
    session.send(numbers(3, 4))
    async with reading(session.producer()) as stream:
        items = await stream.take(4)
        assert [raw.malformed is None for raw, _ in items] == [True, True, False, True]
        assert (items[1][0].headers["note"], items[1][0].headers["content-type"]) == ("\ufeffhello", "\ufefftext")
        await stream.advance(items)
    async with reading(session.producer()) as stream:
        session.send(numbers(4, 5))
        ((raw, _),) = await stream.take(1)
        assert raw.value == {"n": 4}


async def test_metadata_are_read(session: MqttSession) -> None:
    properties: dict[str, Any] = {
        "UserProperty": [("tenant", "eu"), ("tenant", "ü"), ("empty", "")],
        "ContentType": "application/json",
        "ResponseTopic": "answers",
        "CorrelationData": b"\xff\x00",
        "MessageExpiryInterval": 600,
    }
    session.server.send(f"{session.topic}/a/b", [b'{"n":1}'], qos=2, **properties)
    async with reading(session.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert (raw.value, raw.id, raw.key, raw.lane, raw.position) == ({"n": 1}, None, f"{session.topic}/a/b", session.client_id, None)
    assert (raw.delivery, raw.timestamp, raw.headers["redelivered"], raw.headers["qos"], raw.headers["retain"]) == (
        1,
        None,
        "false",
        "1",
        "false",
    )
    assert (raw.headers["tenant"], raw.headers["empty"], raw.headers["content-type"]) == ("ü", "", "application/json")
    assert (raw.headers["response-topic"], raw.headers["correlation-data"]) == ("answers", "\ufffd\x00")
    assert int(raw.headers["message-expiry"]) <= 600


async def test_cloud_events_are_read_in_binary_and_structured_mode(session: MqttSession) -> None:
    attributes = [("id", "1"), ("source", "/shop"), ("specversion", "1.0"), ("type", "order.paid")]
    session.send([b'{"n":1}'], UserProperty=attributes, ContentType="application/json")
    structured = b'{"id":"2","source":"/shop","specversion":"1.0","type":"order.paid","data":{"n":2}}'
    session.send([structured], ContentType="application/cloudevents+json")
    async with reading(session.producer(decode="cloudevents")) as stream:
        items = await stream.take(2)
    assert [raw.value["data"]["n"] for raw, _ in items] == [1, 2]
    assert [raw.id for raw, _ in items] == ["%2Fshop/1", "%2Fshop/2"]


async def test_hostile_and_large_messages_do_not_stop_the_session(session: MqttSession) -> None:
    payloads = [b"", b"null", b"no json", b"\xff\x00", b"[" * 1_000, b'"' + b"x" * 5_000_000 + b'"', b'{"n":1}']
    session.send(payloads)
    async with reading(session.producer()) as stream:
        items = await stream.take(len(payloads))
        assert [raw.data for raw, _ in items] == [b"null", *payloads[1:]]
        for raw, _ in items[2:5]:
            with pytest.raises(MalformedEvent):
                _ = raw.value
        await stream.advance(items)
        session.send(numbers(2, 3))
        assert (await stream.take(1))[0][0].value == {"n": 2}


async def test_undecoded_messages_are_malformed(session: MqttSession) -> None:
    session.send([b'{"an":"order"}'])
    async with reading(session.producer(decode="debezium")) as stream:
        ((raw, payload),) = await stream.take(1)
        with pytest.raises(MalformedEvent, match="Debezium"):
            _ = raw.value
        await stream.producer.advance(items_of([(raw, payload)]))


async def test_a_server_that_does_not_answer_is_named(session: MqttSession) -> None:
    session.set_connection(f"mqtt://127.0.0.1:{free_port()}")
    error = await first_error(session)
    assert isinstance(error, StreamError)
    assert "MQTT cannot be reached: the server does not answer" in str(error)


async def test_a_user_needs_a_password_which_no_error_shows(make_session: MakeSession, guarded: MosquittoServer) -> None:
    session = make_session(guarded)
    for login in ("ada:wr0ng@", "", "eva:s3cret@"):
        session.set_connection(f"mqtt://{login}{guarded.address}")
        error = await first_error(session)
        assert isinstance(error, UpstreamError)
        assert "MQTT cannot be reached: " in str(error)
        assert "Correct the login and password" in str(error.hint)
        assert "wr0ng" not in f"{error} {error.hint}"
    session.set_connection(f"mqtt://ada:s3cret@{guarded.address}")
    session.send(numbers(0, 3))
    async with reading(session.producer()) as stream:
        await stream.advance(await stream.take(3))


@pytest.fixture(scope="module")
def tls() -> Path:
    """Return a folder with an authority and the certificate of a server."""
    return new_authority()


@pytest.fixture(scope="module")
def tls_server(tls: Path) -> Iterator[MosquittoServer]:
    """Return a server with TLS."""
    require()
    server = MosquittoServer(tls=tls)
    yield server
    server.close()


async def test_a_server_with_tls_is_read(make_session: MakeSession, tls_server: MosquittoServer, tls: Path) -> None:
    session = make_session(tls_server)
    session.set_connection(f"mqtts://{tls_server.address}?cafile={tls}/ca.pem")
    large = b'"' + b"x" * 300_000 + b'"'
    session.send([*numbers(0, 3_000), large, *numbers(3_000, 3_005)])
    async with reading(session.producer(receive_maximum=5_000)) as stream:
        items = await stream.take(3_006)
        assert [raw.data for raw, _ in items] == [*numbers(0, 3_000), large, *numbers(3_000, 3_005)]
        await stream.advance(items)


async def test_an_unknown_authority_another_host_and_a_port_without_tls_are_refused(
    make_session: MakeSession, tls_server: MosquittoServer, tls: Path, session: MqttSession
) -> None:
    guarded = make_session(tls_server)
    port = tls_server.address.partition(":")[2]
    for url, hint in (
        (f"mqtts://{tls_server.address}", "cafile"),
        (f"mqtts://localhost:{port}?cafile={tls}/ca.pem", "cafile"),
        (f"mqtts://{tls_server.address}?cafile={tls}/missing.pem", "Check cafile"),
        (f"mqtts://{session.server.address}?cafile={tls}/ca.pem", "mqtts for a port with TLS"),
        (f"mqtt://{tls_server.address}", "mqtts for a port with TLS"),
    ):
        guarded.set_connection(url)
        error = await first_error(guarded)
        assert hint in str(error.hint), (url, error, error.hint)


def test_a_connection_is_tested(session: MqttSession, guarded: MosquittoServer) -> None:
    url = os.environ[connection_variable(session.connection)]
    assert probe_connection(parse_connection("x", url)) == f"MQTT 5 at {session.server.address}: no user"
    assert probe_connection(parse_connection("x", f"mqtt://ada:s3cret@{guarded.address}")).endswith(": user ada")
    with pytest.raises(UpstreamError, match="cannot be reached") as raised:
        probe_connection(parse_connection("x", f"mqtt://ada:no@{guarded.address}"))
    assert "Correct the login" in str(raised.value.hint)

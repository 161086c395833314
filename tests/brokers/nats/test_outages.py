"""Servers that are killed, silent, or refuse a reader. These tests have servers of their own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LaneMove, LogState, StreamLog, StreamSeek
from support.processes.nats import NatsServer, Version, require
from support.processes.proxy import Proxy
from support.sources.nats import MakeStream, NatsStream
from support.sources.reading import items_of, numbers, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats-outages")]

USERS = """
authorization { users: [
  { user: admin, password: secret }
  { user: reader, password: secret, permissions: {
    publish: ["$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.DURABLE.CREATE.*.*", "$JS.API.CONSUMER.DELETE.*.*",
      "$JS.API.CONSUMER.RESET.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.>"]
    subscribe: ["_INBOX.>"] } }
  { user: limited, password: secret, permissions: { publish: ["$JS.API.STREAM.INFO.*"], subscribe: ["_INBOX.>"] } }
  { nkey: NKEY }
] }
"""


async def end_of(stream: NatsStream) -> HeadraceError:
    """Open the upstream, and return the error that it raises."""
    with pytest.raises(HeadraceError) as raised:
        async with reading(stream.producer()) as reader:
            await reader.take(1)
    return raised.value


@pytest.mark.parametrize("answered", [0, 60])
async def test_a_killed_server_ends_the_stream_and_nothing_is_lost(make_stream: MakeStream, own_server: NatsServer, answered: int) -> None:
    stream = make_stream(own_server)
    stream.send(numbers(0, 100))
    async with reading(stream.producer()) as reader:
        items = await reader.take(100)
        await reader.advance(items[:answered])
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError, match="does not answer"):
            await reader.take(1)
        with pytest.raises(StreamError):
            await reader.producer.advance(items_of(items[answered:]))
    assert "does not answer" in str(await end_of(stream))
    await asyncio.to_thread(own_server.start)
    stream.send(numbers(100, 120))
    async with reading(stream.producer()) as reader:
        again = await reader.take(120 - answered)
        while again[-1][0].value["n"] != 119:  # a killed server may forget an acknowledgement
            again += await reader.take(1)
        assert [raw.position for raw, _ in again] == list(range(again[0][0].position, 121))
        assert again[0][0].position <= answered + 1
        await reader.advance(again)
    assert stream.floor() == 120


async def test_an_advance_while_the_server_is_killed_succeeds_at_the_next_opening(make_stream: MakeStream, own_server: NatsServer) -> None:
    stream = make_stream(own_server)
    stream.send(numbers(0, 2_000))
    async with reading(stream.producer()) as reader:
        items = await reader.take(2_000)
        advances = [asyncio.create_task(reader.producer.advance(items_of(items[first : first + 10]))) for first in range(0, 2_000, 10)]
        await asyncio.sleep(0)
        await asyncio.to_thread(own_server.kill)
        results = await asyncio.gather(*advances, return_exceptions=True)
        assert all(result is None or isinstance(result, StreamError) for result in results)
    await asyncio.to_thread(own_server.start)
    async with reading(stream.producer()) as reader:
        stream.send(numbers(2_000, 2_001))
        last = 0
        while last != 2_001:
            ((raw, payload),) = await reader.take(1)
            assert raw.position == last + 1 or not last
            last = raw.position
            await reader.producer.advance(items_of([(raw, payload)]))


def cut(stream: NatsStream, send: Sequence[bytes]) -> None:
    """Send messages, and have the server lose them as a power cut does: the files of the messages are those from before."""
    server = stream.server
    (messages,) = server._folder.glob(f"nats-0/js/**/{stream.name}/msgs")
    before = messages.with_name("before")

    def stop() -> None:
        server._run("stop")
        server.call(server._client.close())

    stop()
    shutil.copytree(messages, before)
    server.start()
    stream.send(send)
    asyncio.run(read_all(stream, len(send)))
    stop()
    shutil.rmtree(messages)
    before.rename(messages)
    server.start()


async def read_all(stream: NatsStream, messages: int) -> None:
    """Read and acknowledge messages. Then open the upstream once more, which notes what is acknowledged."""
    async with reading(stream.producer()) as reader:
        await reader.advance(await reader.take(messages))
    async with reading(stream.producer()) as reader:
        await until(lambda: bool(reader.producer._lanes))  # type: ignore[attr-defined]


async def test_a_server_that_lost_messages_is_refused_also_when_the_stream_has_grown(
    make_stream: MakeStream, own_server: NatsServer
) -> None:
    """New messages have the sequences of lost ones: they would be skipped, or taken for duplicates."""
    stream = make_stream(own_server)
    stream.send(numbers(0, 50))
    await read_all(stream, 50)
    await asyncio.to_thread(cut, stream, numbers(50, 100))
    for grown in (numbers(1_000, 1_010), numbers(1_010, 1_100)):
        error = await end_of(stream)
        assert isinstance(error, UpstreamError)
        assert str(error).startswith("Messages may be lost: stream ")
        assert "at sequence 50, and was read up to 100" in str(error)
        assert "durable" in str(error.hint)
        stream.send(grown)
    async with reading(stream.producer(durable="other", start=51)) as reader:
        assert [raw.data for raw, _ in await reader.take(100)] == numbers(1_000, 1_100)
        (lane,) = reader.producer._lanes  # type: ignore[attr-defined]
    for log in (seek_to(51, lane), None):
        producer = stream.producer()
        producer.log = log
        async with reading(producer) as reader:
            assert [raw.data for raw, _ in await reader.take(100)] == numbers(1_000, 1_100)


def seek_to(position: int, lane: str) -> StreamLog:
    """Return an event log with a planned seek."""

    async def begin(moves: Mapping[str, LaneMove]) -> Mapping[str, int]:
        return {lane: move.position for lane, move in moves.items()}

    async def finish(lanes: Collection[str]) -> None:
        assert set(lanes) == {lane}

    async def look_up(stream: str) -> LogState:
        return LogState("log", 0)

    return StreamLog("nats:test", LogState("log", 5, seek=StreamSeek({lane: position}, begin, finish)), look_up)


@pytest.fixture
def proxied(make_stream: MakeStream) -> Iterator[tuple[NatsStream, Proxy]]:
    """Return a stream whose reader connects through a proxy."""
    stream = make_stream()
    proxy = Proxy(stream.server.port)
    stream.set_connection(f"nats://{proxy.address}")
    yield stream, proxy
    proxy.close()


async def test_a_silent_connection_is_found_by_its_heartbeats(proxied: tuple[NatsStream, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.reader.HEARTBEAT_SECONDS", 0.3)
    stream, proxy = proxied
    stream.send(numbers(0, 1))
    async with reading(stream.producer()) as reader:
        await reader.take(1)
        await asyncio.sleep(1.5)  # several heartbeats, and no error
        proxy.silence()
        with pytest.raises(StreamError, match=r"does not answer|not even a heartbeat"):
            await reader.take(1)


async def test_a_producer_closes_in_time_while_the_connection_is_silent(proxied: tuple[NatsStream, Proxy]) -> None:
    stream, proxy = proxied
    stream.send(numbers(0, 10))
    async with asyncio.timeout(30), reading(stream.producer()) as reader:
        await reader.take(10)
        proxy.silence()
    stream.set_connection(f"nats://{stream.server.address}")
    async with reading(stream.producer()) as reader:
        assert len(await reader.take(10)) == 10


async def test_a_server_that_accepts_and_says_nothing_does_not_answer(stream: NatsStream) -> None:
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    stream.set_connection(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(30):
        error = await end_of(stream)
    assert isinstance(error, StreamError)
    assert "does not answer" in str(error)
    server.close()


async def test_the_second_address_is_used_if_the_first_does_not_answer(stream: NatsStream) -> None:
    stream.send(numbers(0, 1))
    stream.set_connection(f'{{"kind": "nats", "host": "127.0.0.1:1,{stream.server.address}"}}')
    async with reading(stream.producer()) as reader:
        await reader.take(1)


@pytest.fixture
def with_users(version: Version) -> Iterator[tuple[NatsServer, str]]:
    """Return a server with users, and the seed of one."""
    require(version)
    import nacl.signing
    import nkeys

    seed = nkeys.encode_seed(bytes(nacl.signing.SigningKey.generate()), nkeys.PREFIX_BYTE_USER)
    key = nkeys.from_seed(bytearray(seed)).public_key.decode()
    server = NatsServer(version, USERS.replace("NKEY", key), user="admin", password="secret")
    yield server, seed.decode()
    server.close()


async def test_credentials_and_permissions(
    make_stream: MakeStream, with_users: tuple[NatsServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.nats.client.ANSWER_SECONDS", 1.0)
    server, seed = with_users
    stream = make_stream(server)
    stream.send(numbers(0, 2))
    for text in (f"nats://reader:secret@{server.address}", f"nats://{server.address}?nkey_seed={seed}"):
        stream.set_connection(text)
        for _ in range(2):  # the second time, the consumer exists
            async with reading(stream.producer()) as reader:
                await reader.take(2)
        async with reading(stream.producer(durable="other")) as reader:
            await reader.advance(await reader.take(2))
        server.api(f"CONSUMER.DELETE.{stream.name}.{stream.consumer().replace('shop', 'other')}")
    for text in (f"nats://reader:wrong@{server.address}", f"nats://{server.address}", f"nats://token@{server.address}"):
        stream.set_connection(text)
        error = await end_of(stream)
        assert isinstance(error, UpstreamError), error
        assert "Correct the credentials" in (error.hint or "")
    stream.set_connection(f"nats://limited:secret@{server.address}")
    error = await end_of(stream)
    assert isinstance(error, UpstreamError), error
    assert "permissions violation for publish" in str(error).lower()
    assert "Allow this user" in (error.hint or "")


async def test_the_connection_can_be_tested(with_users: tuple[NatsServer, str], version: Version) -> None:
    server, _ = with_users
    text = await asyncio.to_thread(probe_connection, parse_connection("nats", f"nats://admin:secret@{server.address}"))
    assert text.startswith("NATS 2.15: JetStream with" if version == "go" else "NATS 2.9: JetStream with")
    with pytest.raises(UpstreamError, match=r"(?i)authorization violation"):
        await asyncio.to_thread(probe_connection, parse_connection("nats", f"nats://admin:wrong@{server.address}"))


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nats")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("nats.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"


async def test_tls(version: Version, make_stream: MakeStream, tmp_path: Path) -> None:
    require(version)
    cert, key = certificate(tmp_path)
    import ssl

    context = ssl.create_default_context(cafile=str(cert))
    extra = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
    server = NatsServer(version, extra, tls=context, tls_hostname="nats.example")
    try:
        stream = make_stream(server)
        stream.send(numbers(0, 1))
        stream.set_connection(f"nats://{server.address}?ca_file={cert}&tls_hostname=nats.example")
        async with reading(stream.producer()) as reader:
            await reader.take(1)
        for query in (f"ca_file={cert}", "tls=true&tls_hostname=nats.example", ""):
            stream.set_connection(f"nats://{server.address}?{query}")
            error = await end_of(stream)
            assert isinstance(error, UpstreamError), error
            assert "ca_file" in (error.hint or "")
        stream.close()
    finally:
        server.close()

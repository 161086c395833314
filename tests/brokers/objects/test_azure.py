"""Containers of Azure: credentials of all kinds, tokens that expire, folders that are blobs, and leases on the state."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.azure import tokens
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes import azurite
from support.processes.azurite import ACCOUNT, KEY, Azurite
from support.processes.broker_server import connection_variable
from support.processes.certificates import Authority
from support.processes.identity_endpoint import IdentityEndpoint
from support.sources.objects import TestBucket

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("azure"), pytest.mark.timeout(120)]

ON_AZURE = pytest.mark.parametrize("bucket", ["az"], indirect=True)
COUNT = r"Azure Blob Storage at https?://127\.0\.0\.1:\d+/devstoreaccount1: \d+ containers"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A server with TLS, which accepts tokens."""
    azurite.require()
    pytest.importorskip("azure.identity")
    server = Azurite(authority=Authority(tmp_path_factory.mktemp("azurite")))
    yield server
    server.close()


@pytest.fixture
def secure_bucket(secure: Azurite) -> Iterator[TestBucket]:
    bucket = TestBucket(secure)
    yield bucket
    bucket.close()


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityEndpoint]:
    endpoint = IdentityEndpoint()
    for name, value in endpoint.environment.items():
        monkeypatch.setenv(name, value)
    yield endpoint
    endpoint.close()


def connect(bucket: TestBucket, text: str) -> None:
    os.environ[connection_variable(bucket.connection)] = text


async def test_objects_are_read_with_every_kind_of_credentials(
    secure_bucket: TestBucket, secure: Azurite, identity: IdentityEndpoint
) -> None:
    secret = quote(secure.shared_access(), safe="")
    address = f"https://{secure.address}/{ACCOUNT}"
    string = f"DefaultEndpointsProtocol=https;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={address};"
    shared = f"BlobEndpoint={address};SharedAccessSignature={secure.shared_access()}"
    authority = secure.located.partition("ca_bundle=")[2]
    connections = [
        secure.connection,
        f"azure://{secure.located}&sas_token={secret}",
        *(json.dumps({"kind": "azure", "extra": {"connection_string": one, "ca_bundle": authority}}) for one in (string, shared)),
        f"azure://{secure.located}",
        f"azure://{secure.located}&client_id=my-identity",
    ]
    for number, text in enumerate(connections):
        connect(secure_bucket, text)
        secure_bucket.put(f"{number}.jsonl", b"1\n")
        async with reading(secure_bucket.producer(read="lines")) as stream:
            items = await stream.take(1)
            assert [raw.key for raw, _ in items] == [f"in/{number}.jsonl"]
            await stream.advance(items)
        assert re.fullmatch(COUNT, await asyncio.to_thread(probe_connection, parse_connection("azure", text)))
    assert identity.issued == [None, None, "my-identity", "my-identity"]


async def test_a_token_is_renewed_before_it_expires(
    secure_bucket: TestBucket, secure: Azurite, identity: IdentityEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint of tokens is away while the first one is still valid."""
    monkeypatch.setattr(tokens, "EARLY_SECONDS", 59.0)
    monkeypatch.setattr(tokens, "RETRY_SECONDS", 0.2)
    identity.lifetime_seconds = 60.0
    connect(secure_bucket, f"azure://{secure.located}")
    secure_bucket.put("a", b"1\n")
    async with reading(secure_bucket.producer(read="lines")) as stream:
        items = await stream.take(1)
        identity.status = 500
        await stream.advance(items)
        identity.status = 200
        async with asyncio.timeout(60):
            while len(identity.issued) < 4:
                await asyncio.sleep(0.1)
        secure_bucket.put("b", b"2\n")
        await stream.advance(await stream.take(1))
        assert not stream.producer.get_errors()


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (f"azure://{ACCOUNT}:d3Jvbmc%3D@{{located}}", UpstreamError, "AuthenticationFailed|InvalidAuthenticationInfo"),
        (f"azure://{ACCOUNT}:d3Jvbmc%3D@127.0.0.1:1/{ACCOUNT}?scheme=http", StreamError, "does not answer"),
        ("azure://{located}&sas_token=sv%3D2023-11-03%26sig%3Dwrong", UpstreamError, "AuthenticationFailed|AuthorizationFailure"),
        ("azure://{located}&sas_token={reading}", UpstreamError, "AuthorizationPermissionMismatch"),
        (f"azure://{ACCOUNT}@{{located}}&ca_bundle=/no/such/file", UpstreamError, "No such file"),
        ("azure://{located}&regoin=x", UpstreamError, "unknown settings: regoin"),
        ("s3://{located}", UpstreamError, "of kind 's3', not 'azure'"),
    ],
)
async def test_a_wrong_connection_says_why(
    secure_bucket: TestBucket, secure: Azurite, text: str, kind: type[HeadraceError], message: str
) -> None:
    reader = quote(secure.shared_access(permissions="rl"), safe="")
    connect(secure_bucket, text.format(located=secure.located, reading=reader))
    producer = secure_bucket.producer()
    with pytest.raises(kind, match=message) as opened:
        await anext(aiter(producer.open_stream()))
    await producer.aclose()
    assert "sig=" not in f"{opened.value} {opened.value.hint}"


async def test_an_identity_without_a_token_says_why(secure_bucket: TestBucket, secure: Azurite, identity: IdentityEndpoint) -> None:
    identity.status = 400
    connect(secure_bucket, f"azure://{secure.located}")
    with pytest.raises(UpstreamError, match="No access token of Azure"):
        await anext(aiter(secure_bucket.producer().open_stream()))


def test_a_token_that_may_not_list_containers_is_accepted(secure: Azurite) -> None:
    text = f"azure://{secure.located}&sas_token={quote(secure.shared_access('co'), safe='')}"
    assert probe_connection(parse_connection("azure", text)).endswith("the credentials are accepted, and may not list all containers")


@ON_AZURE
def test_the_test_of_a_connection_counts_the_containers(bucket: TestBucket) -> None:
    assert re.fullmatch(COUNT, probe_connection(parse_connection("azure", bucket.server.connection)))


@ON_AZURE
async def test_blobs_that_stand_for_folders_are_not_read(bucket: TestBucket) -> None:
    assert isinstance(bucket.server, Azurite)
    bucket.server.put(bucket.name, "in/folder", b"", hdi_isfolder="true")
    bucket.put("folder/a", b"a")
    bucket.server.put(bucket.name, "in/z", b"z", owner="ada")
    async with reading(bucket.producer()) as stream:
        assert [raw.key for raw, _ in await stream.take(2)] == ["in/folder/a", "in/z"]


@ON_AZURE
async def test_a_lease_on_the_state_says_what_to_do(bucket: TestBucket) -> None:
    assert isinstance(bucket.server, Azurite)
    bucket.put("a", b"a")
    async with reading(bucket.producer()) as stream:
        items = await stream.take(1)
        (head,) = bucket.state_keys()
        bucket.server.send(
            "PUT", f"/{bucket.name}/{head}", {"comp": "lease"}, {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
        )
        with pytest.raises(UpstreamError, match="LeaseIdMissing") as refused:
            await stream.advance(items)
        assert refused.value.hint == "End the lease of this blob."
        bucket.server.send(
            "PUT", f"/{bucket.name}/{head}", {"comp": "lease"}, {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}
        )
        await stream.advance(items)

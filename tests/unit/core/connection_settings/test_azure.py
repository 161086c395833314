"""Connections to a storage account of Azure."""

from __future__ import annotations

import json

import pytest

from headrace.core.connection import parse_connection
from headrace.core.connection_settings.azure import Identity, Settings, read_settings
from headrace.errors import UpstreamError


def settings(text: str) -> Settings:
    return read_settings(parse_connection("azure", text))


def from_string(text: str, **extra: str) -> Settings:
    return settings(json.dumps({"kind": "azure", "extra": {"connection_string": text, **extra}}))


ADDRESSES = {"blob": "https://shop.blob.core.windows.net", "queue": "https://shop.queue.core.windows.net"}


def test_an_account_without_settings_has_the_credentials_of_the_machine() -> None:
    assert settings("azure://shop@") == ("shop", ADDRESSES, None, None, Identity(), None)


def test_credentials_are_a_key_or_a_signature_or_an_identity() -> None:
    assert settings("azure://shop:a%2Bb%2F@").key == b"k\xe6\xff"
    assert settings("azure://shop@?sas_token=%3Fsv%3D1%26sig%3Da%252Bb").signature == "sv=1&sig=a%2Bb"
    assert settings("azure://shop@?client_id=me").identity == Identity(None, "me")
    assert settings("azure://shop@?tenant_id=t&client_id=c&client_secret=SECRET").identity == ("t", "c", "SECRET")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("azure://shop@", ADDRESSES),
        ("azure://shop:a2V5@127.0.0.1:10000/shop?scheme=http", {"blob": "http://127.0.0.1:10000/shop"}),
        (
            "azure://shop@shop.blob.core.chinacloudapi.cn",
            {"blob": "https://shop.blob.core.chinacloudapi.cn", "queue": "https://shop.queue.core.chinacloudapi.cn"},
        ),
        ("azure://shop@?endpoint_url=https://store/shop/", {"blob": "https://store/shop"}),
        ("azure://shop@?endpoint_url=https://b&queue_endpoint_url=https://q", {"blob": "https://b", "queue": "https://q"}),
    ],
)
def test_addresses(text: str, addresses: dict[str, str]) -> None:
    assert settings(text).addresses == addresses


def test_connection_strings() -> None:
    key = from_string("DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=a2V5;EndpointSuffix=core.windows.net")
    assert (key.account, key.addresses, key.key) == ("shop", ADDRESSES, b"key")
    shared = from_string("BlobEndpoint=https://shop.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D;")
    assert (shared.account, shared.signature, shared.addresses) == ("", "sv=1&sig=x%3D", {"blob": ADDRESSES["blob"]})
    other = from_string("AccountName=shop;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/shop", ca_bundle="/ca.pem")
    assert (other.addresses, other.ca_bundle) == ({**ADDRESSES, "blob": "http://127.0.0.1:10000/shop"}, "/ca.pem")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3://", "of kind"),
        ("azure://", "names no storage account"),
        ("azure://shop@?acount=x", "unknown settings: acount"),
        ("azure://shop:SECRET!@", "not Base64"),
        ("azure://shop:U0VDUkVU@?sas_token=sig%3DSECRET", "several credentials"),
        ("azure://shop@?sas_token=sig%3DSECRET&client_id=c", "several credentials"),
        ("azure://shop@?client_secret=SECRET&client_id=c", "a part of a service principal"),
        ("azure://shop@?tenant_id=t&client_id=c", "a part of a service principal"),
        ("azure://shop@localhost?scheme=http", "without TLS"),
        ("azure://shop@localhost?scheme=http&sas_token=sig%3DSECRET", "without TLS"),
        ("azure://shop@?endpoint_url=ftp://x", "invalid address"),
        ("azure://?endpoint_url=http://x", "without TLS"),
        ("azure://x?connection_string=AccountName%3Dshop", "and other settings"),
        ("azure://?connection_string=AccountKey%3DSECRET", "without AccountName and BlobEndpoint"),
        ("azure://?connection_string=BlobEndpoint%3Dhttps%3A%2F%2Fx%3BAccountKey%3DU0VDUkVU", "a key and no account"),
    ],
)
def test_wrong_settings_are_refused_and_show_no_secret(text: str, message: str) -> None:
    with pytest.raises(UpstreamError, match=message) as refused:
        settings(text)
    assert "SECRET" not in f"{refused.value} {refused.value.hint}"
    assert "U0VDUkVU" not in f"{refused.value} {refused.value.hint}"

"""Settings of the object stores' clients from connections."""

from __future__ import annotations

import json

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import TablesRefused
from headrace.pipeline.table_storage.connection_options import client_options


@pytest.mark.parametrize(
    ("scheme", "connection", "expected"),
    [
        ("s3", "s3://?region=eu-west-1", {"aws_region": "eu-west-1"}),
        ("s3", "aws://", {}),
        (
            "s3",
            "s3://key:secret@[::1]:9000?scheme=http&session_token=t",
            {
                "aws_region": "us-east-1",
                "aws_access_key_id": "key",
                "aws_secret_access_key": "secret",
                "aws_session_token": "t",
                "aws_endpoint": "http://[::1]:9000",
                "allow_http": "true",
            },
        ),
        (
            "az",
            "azure://shop@",
            {"azure_storage_account_name": "shop", "azure_storage_endpoint": "https://shop.blob.core.windows.net"},
        ),
        (
            "az",
            "azure://shop:c2VjcmV0@127.0.0.1:10000/shop?scheme=http",
            {
                "azure_storage_account_name": "shop",
                "azure_storage_account_key": "c2VjcmV0",
                "azure_storage_endpoint": "http://127.0.0.1:10000/shop",
                "allow_http": "true",
            },
        ),
        (
            "az",
            json.dumps({"kind": "azure", "login": "shop", "extra": {"sas_token": "?sv=1&sig=s"}}),
            {
                "azure_storage_account_name": "shop",
                "azure_storage_sas_key": "sv=1&sig=s",
                "azure_storage_endpoint": "https://shop.blob.core.windows.net",
            },
        ),
        (
            "az",
            "azure://shop@?tenant_id=t&client_id=c&client_secret=s",
            {
                "azure_storage_account_name": "shop",
                "azure_storage_tenant_id": "t",
                "azure_storage_client_id": "c",
                "azure_storage_client_secret": "s",
                "azure_storage_endpoint": "https://shop.blob.core.windows.net",
            },
        ),
    ],
)
def test_a_connection_becomes_settings_of_the_client(scheme: str, connection: str, expected: dict[str, str]) -> None:
    assert client_options(scheme, parse_connection("warehouse", connection)) == expected


@pytest.mark.parametrize(
    ("scheme", "connection", "message"),
    [
        ("s3", "gcs://?key_file=x", "of kind 'gcs', not 's3' or 'aws'"),
        ("s3", "s3://key@?region=eu-west-1", "half of the credentials"),
        ("s3", "s3://?profile=shop", "unknown settings: profile"),
        ("az", "s3://key:secret@", "of kind 's3', not 'azure'"),
        ("az", "azure://shop@?ca_bundle=/etc/ca.pem", "the setting ca_bundle"),
        ("az", "azure://", "names no storage account"),
    ],
)
def test_a_connection_that_tables_cannot_use_is_refused(scheme: str, connection: str, message: str) -> None:
    with pytest.raises(TablesRefused, match=f"^The connection 'warehouse' cannot be used for tables: .*{message}") as caught:
        client_options(scheme, parse_connection("warehouse", connection))
    assert caught.value.hint
    assert "secret" not in f"{caught.value} {caught.value.hint}"

"""A real REST catalog of Iceberg tables, with files on the disk or in a bucket, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyiceberg.catalog.rest import RestCatalog

from support.processes import versitygw
from support.processes.broker_server import BrokerServer, java, require_server
from support.processes.shared_servers import shared_server

PREFIX = "PYICEBERG_CATALOG__HEADRACE__"
"""Of the variables that configure the catalog of Headrace."""


class IcebergRest(BrokerServer):
    """One catalog. Its tables stay the same over `kill` and `start`. `settings` are variables of its script."""

    def __init__(self, **settings: str) -> None:
        super().__init__("iceberg-rest", folder=None, **settings)


@shared_server
def shared() -> IcebergRest:
    """Return the catalog that all tests of this process share. Skip the test where it is not installed."""
    _require()
    return IcebergRest()


def _require() -> None:
    require_server("the REST catalog of Iceberg", "iceberg-rest-1.10.1/classes", program=java())


@contextmanager
def rest_catalog(address: str | None = None) -> Iterator[str]:
    """Configure the catalog of Headrace in the environment, with a namespace of its own, and yield the namespace.

    `address` stands for that of the shared server, for example of a proxy before it.
    """
    namespace = f"tables_{secrets.token_hex(6)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"{PREFIX}URI", f"http://{address or shared().address}")
        patch.setenv(f"{PREFIX}NAMESPACE", namespace)
        yield namespace


@contextmanager
def rest_catalog_over_s3() -> Iterator[None]:
    """Configure a new catalog in the environment, with the files of its tables in a bucket of the shared S3 server."""
    _require()
    gateway = versitygw.shared()
    bucket = gateway.create_bucket()
    files = {"endpoint": f"http://{gateway.address}", "access-key-id": "test", "secret-access-key": "testtest"}
    properties = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": "true", "client.region": "us-east-1"}
    properties |= {f"s3.{name}": value for name, value in files.items()}
    server = IcebergRest(
        ICEBERG_WAREHOUSE=f"s3://{bucket}/warehouse", ICEBERG_PROPERTIES=" ".join(f"{name}={value}" for name, value in properties.items())
    )
    try:
        with rest_catalog(server.address), pytest.MonkeyPatch.context() as patch:
            for name, value in (files | {"region": "us-east-1"}).items():
                patch.setenv(f"{PREFIX}S3__{name.upper().replace('-', '_')}", value)
            yield
    finally:
        server.close()
        gateway.delete_bucket(bucket)


def is_configured() -> bool:
    """Return whether the environment configures a catalog."""
    return f"{PREFIX}URI" in os.environ


def rename_table(name: str, other: str) -> None:
    """Give a table of the configured namespace another name."""
    with RestCatalog("renames", uri=os.environ[f"{PREFIX}URI"]) as catalog:
        namespace = os.environ[f"{PREFIX}NAMESPACE"]
        catalog.rename_table((namespace, name), (namespace, other))

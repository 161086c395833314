"""A real REST catalog of Iceberg tables, with files on the disk, on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from pyiceberg.catalog.rest import RestCatalog

from support.processes.broker_server import BrokerServer, java, require_server

PREFIX = "PYICEBERG_CATALOG__HEADRACE__"
"""Of the variables that configure the catalog of Headrace."""


class IcebergRest(BrokerServer):
    """One catalog. Its tables stay the same over `kill` and `start`."""

    def __init__(self) -> None:
        super().__init__("iceberg-rest")


@cache
def shared() -> IcebergRest:
    """Return the catalog that all tests of this process share. Skip the test where it is not installed."""
    require_server("the REST catalog of Iceberg", "iceberg-rest-1.10.1", program=java())
    server = IcebergRest()
    atexit.register(server.close)
    return server


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


def is_configured() -> bool:
    """Return whether the environment configures a catalog."""
    return f"{PREFIX}URI" in os.environ


def rename_table(name: str, other: str) -> None:
    """Give a table of the configured namespace another name."""
    with RestCatalog("renames", uri=os.environ[f"{PREFIX}URI"]) as catalog:
        namespace = os.environ[f"{PREFIX}NAMESPACE"]
        catalog.rename_table((namespace, name), (namespace, other))

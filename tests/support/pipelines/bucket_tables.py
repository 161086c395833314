"""Tables in a folder of a bucket, on a server of the test, beside those of a disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from headrace.core.connection import parse_connection
from headrace.core.values.locations import TableLocation, parse_table_location
from headrace.pipeline.table_storage.connection_options import client_options
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables
from support.processes import azurite, versitygw
from support.processes.azurite import Azurite
from support.processes.broker_server import connection_variable
from support.processes.versitygw import VersityGateway

SERVERS: Final[Mapping[str, Callable[[], VersityGateway | Azurite]]] = {"s3": versitygw.shared, "az": azurite.shared}
"""The servers that the tests of this process share, by the scheme of their locations."""


@contextmanager
def table_location(connection: str | None = None, *, scheme: str = "s3") -> Iterator[TableLocation]:
    """Create a bucket, and a connection in the environment, by default the true one. Yield the location of tables in the bucket."""
    server = SERVERS[scheme]()
    bucket, id = server.create_bucket(), f"tables_{secrets.token_hex(4)}"
    os.environ[connection_variable(id)] = connection or server.connection
    yield parse_table_location(f"{scheme}://{id}@{bucket}/shop/tables")
    del os.environ[connection_variable(id)]
    server.delete_bucket(bucket)


@contextmanager
def bucket_tables(scheme: str = "s3") -> Iterator[ObjectFolder]:
    """Create a bucket, and yield a folder of it."""
    with table_location(scheme=scheme) as location:
        yield true_folder(location)


def true_folder(location: TableLocation) -> ObjectFolder:
    """Return the folder of a location with the true connection to its server."""
    return folder_of(location, SERVERS[location.location.scheme]().connection)


def folder_of(location: TableLocation, connection: str) -> ObjectFolder:
    """Return the folder of a location with this connection."""
    return ObjectFolder(location, client_options(location.location.scheme, parse_connection(location.connection, connection)))


def delta_table(folder: Tables) -> DeltaTable:
    """Open a Delta table."""
    return DeltaTable(folder) if isinstance(folder, Path) else DeltaTable(folder.url, storage_options=folder.options)


def move_table(tables: Tables, name: str, other: str) -> None:
    """Give a table another name."""
    if isinstance(tables, Path):
        (tables / name).rename(tables / other)
        return
    source, target = tables / name, tables / other
    for each in source.sizes():
        target.replace(each, source.read(each) or b"")
        source.delete(each)

"""Tables in a folder of a bucket, on a server of the test, beside those of a disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable

from headrace.core.connection import parse_connection
from headrace.core.values.locations import TableLocation, parse_table_location
from headrace.pipeline.table_storage.connection_options import client_options
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables
from support.processes import versitygw
from support.processes.broker_server import connection_variable


@contextmanager
def table_location(connection: str | None = None) -> Iterator[TableLocation]:
    """Create a bucket, and a connection in the environment, by default the true one. Yield the location of tables in the bucket."""
    server = versitygw.shared()
    bucket, id = server.create_bucket(), f"tables_{secrets.token_hex(4)}"
    os.environ[connection_variable(id)] = connection or server.connection
    yield parse_table_location(f"s3://{id}@{bucket}/shop/tables")
    del os.environ[connection_variable(id)]
    server.delete_bucket(bucket)


@contextmanager
def bucket_tables() -> Iterator[ObjectFolder]:
    """Create a bucket, and yield a folder of it."""
    with table_location() as location:
        yield folder_of(location, os.environ[connection_variable(location.connection)])


def folder_of(location: TableLocation, connection: str) -> ObjectFolder:
    """Return the folder of a location with this connection."""
    return ObjectFolder(location, client_options(parse_connection(location.connection, connection)))


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

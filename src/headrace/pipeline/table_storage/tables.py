"""Open the folder of the tables."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from headrace.core.values.locations import TableLocation
from headrace.errors import PipelineError
from headrace.pipeline.table_storage.atomic_files import AtomicFiles
from headrace.pipeline.table_storage.connection_options import client_options
from headrace.pipeline.table_storage.local_files import LocalFiles
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.triggers.secrets import get_connection

Tables: TypeAlias = Path | ObjectFolder
"""The folder with a folder for each table."""


def open_tables(tables: Path | TableLocation) -> Tables:
    """Return the folder of the tables. The connection to a bucket is read from this process's secrets.

    Raises:
        SecretError: The connection does not exist.
        PipelineError: The connection is of another kind, or the client library is missing.
        ApiUnavailable: The API does not answer.
    """
    if isinstance(tables, Path):
        return tables
    if find_spec("obstore") is None:
        raise PipelineError(f"The tables are in {tables}, and obstore is missing.", hint="pip install 'headrace[delta]'")
    return ObjectFolder(tables, client_options(tables.location.scheme, get_connection(tables.connection)))


def files_in(tables: Tables) -> AtomicFiles:
    """Return the small files of a folder."""
    return LocalFiles(tables) if isinstance(tables, Path) else tables

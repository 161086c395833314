"""The folder of the tables, for commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.credentials import deployment_key
from headrace.cli.log_setup import set_up_logging
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.pipeline.table_storage.tables import Tables


@contextmanager
def table_folder(settings: Settings, command: str) -> Iterator[Tables]:
    """Return the folder of the tables. The connection to a bucket is read as a short job of the API, with `command` as its project.

    Raises:
        UsageError: The connection is in the API, and its deployment key is not known.
        SecretError: The connection does not exist.
        PipelineError: The connection cannot be used for tables.
    """
    from headrace.wiring.stored_connections import opened_tables  # here, since it imports the client of the API

    if not isinstance(settings.table_location, Path):
        set_up_logging(settings, quiet=True)
    with opened_tables(settings, lambda: deployment_key(settings), command) as folder:
        yield folder

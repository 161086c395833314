"""The catalog that names the newest version of each Iceberg table.

It is the catalog `headrace` of pyiceberg's configuration: `.pyiceberg.yaml`, or variables such as `PYICEBERG_CATALOG__HEADRACE__URI`.
Its property `namespace` names the namespace of the tables. Without that configuration, it is a SQLite file in the folder of tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config
from requests import Session

from headrace.durable_files import create, replace_file, sync, sync_folder
from headrace.errors import PipelineError
from headrace.pipeline.tables.iceberg.errors import LOCK_SECONDS, iceberg_errors
from headrace.pipeline.tables.iceberg.schemas import partitioned_schema
from headrace.pipeline.tables.sink import ICEBERG_MARK

CATALOG: Final = "headrace"
"""The name of the catalog, and by default of the namespace of the tables."""
NAMESPACE: Final = "namespace"
"""The property of the configured catalog with the namespace of the tables."""
ANSWER_SECONDS: Final = 60
"""How long a request waits for a REST catalog."""
FILE_BYTES: Final = 16 * 1024 * 1024
"""The size in memory of a file's rows. A run of a keyed table writes each file again in which it replaces a row."""

_IO: Final = "headrace.pipeline.tables.iceberg.durable_io.DurableFileIO"
_PROPERTIES: Final = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",  # otherwise each append adds a manifest, and each later commit lists them all
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: f"{FILE_BYTES}",
}


class IcebergTables:
    """The Iceberg tables of the folder `tables`. Each method raises `PipelineError` if the catalog cannot be used, or stays locked."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        configuration = Config().get_catalog_config(CATALOG)
        self._namespace = Catalog.identifier_to_tuple(f"{(configuration or {}).get(NAMESPACE, CATALOG)}")
        self._file = tables / ".iceberg" / "catalog.db" if configuration is None else None
        with iceberg_errors(f"The catalog {self._file or CATALOG} of Iceberg tables was not opened"):
            self._catalog = _local(tables, self._file) if self._file is not None else _configured(configuration or {}, self._namespace)

    def open(self, name: str) -> Table | None:
        """Return the newest version of a table, or None if it does not exist.

        Raises:
            PipelineError: It has another format, or its metadata is not that of the catalog.
        """
        folder = self._tables / name
        if (folder / "_delta_log").exists() or any(folder.glob("*.parquet")):
            raise PipelineError(
                f"{folder} holds a table of another format, and the pipeline writes Iceberg.",
                hint="Move it away, or give the pipeline another table.",
            )
        with iceberg_errors(f"The Iceberg table {name!r} was not opened"):
            return self._load(name, folder)

    def create(self, name: str, columns: pa.Schema, partition_by: Sequence[str] = ()) -> Table:
        """Create a table without rows, or return the one that another driver created meanwhile."""
        folder = self._tables / name
        self.mark(name)
        location = None if self._file is None else f"file://{folder.absolute()}"
        with iceberg_errors(f"The Iceberg table {name!r} was not created"):
            try:
                schema, partitions = partitioned_schema(columns, partition_by)
                table = self._catalog.create_table((*self._namespace, name), schema, location, partitions, properties=_PROPERTIES)
            except TableAlreadyExistsError:
                table = self._catalog.load_table((*self._namespace, name))
            self.sync()
        return table

    def mark(self, name: str) -> None:
        """Record in the folder of tables that a table is in the catalog, so that commands list it."""
        mark = self._tables / name / ICEBERG_MARK
        if not mark.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            replace_file(mark, f"{'.'.join(self._namespace)}.{name}\n".encode())

    def sync(self) -> None:
        """Sync the catalog's file to the disk, with its folder: SQLite leaves the removal of its journal to the system."""
        if self._file is None:
            return
        with iceberg_errors(f"The catalog {self._file} was not synced to the disk"):
            sync(self._file)
            sync_folder(self._file.parent)
            sync_folder(self._tables)

    def _load(self, name: str, folder: Path) -> Table | None:
        try:
            return self._catalog.load_table((*self._namespace, name))
        except NoSuchTableError:
            self._check_not_lost(folder)
            return None
        except FileNotFoundError as error:
            if self._file is None or (folder / "metadata").exists():
                raise PipelineError(
                    f"The metadata of the Iceberg table {name!r} is not where the catalog says: {error}",
                    hint="Iceberg has absolute paths: move the folder of tables back, or restore it from a backup.",
                ) from error
            self._catalog.drop_table((*self._namespace, name))  # its folder was moved or deleted: a new table takes the name
            return None

    def _check_not_lost(self, folder: Path) -> None:
        """Raise `PipelineError` if a table was committed to that the catalog does not have. The first metadata has no rows."""
        if self._file is not None and any(not path.name.startswith("00000-") for path in (folder / "metadata").glob("*.metadata.json")):
            raise PipelineError(
                f"{folder} holds an Iceberg table that the catalog {self._file} does not have.",
                hint="Restore the catalog from a backup, or register the table's newest metadata with register_table of pyiceberg.",
            )


def _local(tables: Path, file: Path) -> Catalog:
    if not file.exists():
        _create(tables, file)
    _check(file)
    catalog = SqlCatalog(CATALOG, **_location(tables, file), **{PY_IO_IMPL: _IO})
    finalize(catalog, catalog.engine.dispose)  # a sink has no end at which to close its connections
    return catalog


def _create(tables: Path, file: Path) -> None:
    """Create the catalog, whole. Of several drivers that do so, one succeeds."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{uuid4().hex}.db")
    try:
        with SqlCatalog(CATALOG, **_location(tables, draft)) as catalog:
            catalog.create_namespace(CATALOG)
        sync(draft)
        create(file, draft)
    finally:
        draft.unlink(missing_ok=True)
    for folder in file.parents[:2]:
        sync_folder(folder)


def _check(file: Path) -> None:
    """Wait until the catalog can be read. pyiceberg would take a locked or foreign file for a new one, and create its tables there."""
    with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=rw", uri=True, timeout=LOCK_SECONDS)) as database:
        database.execute("SELECT metadata_location FROM iceberg_tables LIMIT 0")


def _location(tables: Path, file: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{file.absolute()}?timeout={LOCK_SECONDS}", "warehouse": f"file://{tables.absolute()}"}


def _configured(configuration: Mapping[str, Any], namespace: Identifier) -> Catalog:
    properties = {PY_IO_IMPL: _IO, **configuration}
    catalog = _BoundedRestCatalog(CATALOG, **properties) if _is_rest(configuration) else load_catalog(CATALOG, **properties)
    if not catalog.namespace_exists(namespace):
        try:
            catalog.create_namespace(namespace)
        except Exception:
            if not catalog.namespace_exists(namespace):  # otherwise another driver was first: some servers answer that with their own error
                raise
    return catalog


def _is_rest(configuration: Mapping[str, Any]) -> bool:
    if PY_CATALOG_IMPL in configuration:
        return False
    kind = configuration.get(TYPE)
    return f"{configuration.get(URI, '')}".startswith("http") if kind is None else f"{kind}".lower() == "rest"


class _BoundedRestCatalog(RestCatalog):
    """A REST catalog whose requests end. Those of pyiceberg wait for a server that does not answer without a limit."""

    def _config_headers(self, session: Session) -> None:
        """Bound the requests of a new session, before one of them requests a token."""
        super()._config_headers(session)
        setattr(session, "request", partial(session.request, timeout=ANSWER_SECONDS))  # noqa: B010  mypy refuses the assignment to a method

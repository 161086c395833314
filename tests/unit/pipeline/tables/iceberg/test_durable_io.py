from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.tables.iceberg import durable_io
from headrace.pipeline.tables.iceberg.durable_io import DurableFileIO


@pytest.mark.parametrize("name", ["metadata/1.json", "data/1.parquet", "data/a=1/b=2/c=3/d=4/1.parquet"])
def test_a_file_is_synced_with_all_folders_up_to_that_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table = tmp_path / "tables" / "legs"
    (table / "metadata").mkdir(parents=True)
    synced: list[Path] = []
    monkeypatch.setattr(durable_io, "sync", synced.append)
    monkeypatch.setattr(durable_io, "sync_folder", synced.append)
    with DurableFileIO().new_output(f"file://{table / name}").create() as stream:
        stream.write(b"x")
    file = table / name
    expected = [file, *(folder for folder in file.parents if folder.is_relative_to(tmp_path / "tables"))]
    assert synced == expected

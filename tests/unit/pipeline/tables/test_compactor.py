from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.tables.compactor import TableCompactor
from headrace.pipeline_declaration import TableFormat


@pytest.mark.parametrize("formats", [{}, {"spent": "parquet"}], ids=["no-table", "no-folder"])
def test_the_thread_ends_with_the_driver(tmp_path: Path, formats: dict[str, TableFormat]) -> None:
    before = set(threading.enumerate())
    with TableCompactor(tmp_path, formats, RunLock().exclusive) as compactor:
        (thread,) = set(threading.enumerate()) - before
        compactor.runs_ended(1)
    thread.join(30)
    assert not thread.is_alive()

"""The archive of Spark's classes: its creation by the command, and its use by a session."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.spark.class_archive import class_archive
from headrace.pipeline.spark.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_session_maps_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    archive = class_archive(find_java(tmp_path))
    if not archive.is_file():
        pytest.skip("This environment has no archive: run `headrace prepare-spark`.")
    gateway: Any = spark.sparkContext._gateway
    assert str(archive) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_command_writes_an_archive_that_java_accepts(tmp_path: Path) -> None:
    """The other environment has a space in its path, and the packages of this one."""
    other = tmp_path / "an environment"
    venv.create(other, with_pip=False, symlinks=True)
    (packages,) = other.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text("\n".join(path for path in sys.path if path))
    python = str(other / "bin" / "python")
    answer = subprocess.run([python, "-m", "headrace", "prepare-spark"], capture_output=True, text=True, check=True, cwd=tmp_path)
    (archive,) = other.glob("var/headrace/spark-*.jsa")
    assert str(archive) in answer.stdout
    query = "from pathlib import Path; from headrace.pipeline.spark.session import open_session\n"
    query += "with open_session('t', master='local[1]', work=Path('work')) as spark:\n"
    query += "    print(Path(f'/proc/{spark.sparkContext._gateway.proc.pid}/maps').read_text())\n"
    maps = subprocess.run([python, "-c", query], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert str(archive) in maps

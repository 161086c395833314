"""One Spark session for the whole test run, because its start costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.spark.session import open_session
from headrace.pipeline.table_storage.tables import Tables
from support.pipelines.bucket_tables import bucket_tables
from support.pipelines.kit import Api, running_api


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with open_session("tests", master="local[2]", work=tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def api(home: Path) -> Iterator[Api]:
    with running_api(home) as running:
        yield running


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.brokers)])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Return a folder for tables: of a disk, and of a bucket."""
    if request.param == "disk":
        yield tmp_path
        return
    with bucket_tables() as folder:
        yield folder

"""Where the archive of Spark's classes is, and which options map it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import ResourceError
from headrace.pipeline.spark.class_archive import archive_options, class_archive
from headrace.pipeline.spark.class_archive_writer import create_class_archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a Java, beside an empty Python environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    return home


def test_an_archive_is_mapped_once_it_is_there(java: Path) -> None:
    assert archive_options(java) == ()
    archive = class_archive(java)
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in archive_options(java)


def test_each_java_has_an_archive_of_its_own(java: Path) -> None:
    before = class_archive(java)
    (java / "release").write_text('JAVA_VERSION="17.0.16"\n')
    assert class_archive(java) != before
    (java / "release").unlink()
    assert class_archive(java) != before


def test_an_environment_that_cannot_be_written_is_named(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.spark.class_archive_writer.find_java", lambda _work: java)
    Path(sys.prefix).touch()
    with pytest.raises(ResourceError, match=r"cannot be written to .*var/headrace") as raised:
        create_class_archive(tmp_path / "work")
    assert "owner of the environment" in str(raised.value.hint)
    assert archive_options(java) == ()

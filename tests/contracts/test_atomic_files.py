"""The contract of the small files beside tables, on a disk and in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from headrace.pipeline.table_storage.tables import Tables, files_in
from support.pipelines.bucket_tables import bucket_tables

RIVALS = 6


@pytest.fixture(params=["disk", pytest.param("bucket", marks=[pytest.mark.brokers, pytest.mark.xdist_group("objects")])])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    if request.param == "disk":
        yield tmp_path / "tables"
        return
    with bucket_tables() as folder:
        yield folder


def test_a_file_is_created_once_and_replaced_as_a_whole(tables: Tables) -> None:
    files = files_in(tables)
    assert files.read("legs/a.json") is None
    assert files.create("legs/a.json", b"first")
    assert not files.create("legs/a.json", b"second")
    assert files.read("legs/a.json") == b"first"
    files.replace("legs/a.json", b"")
    files.replace("legs/deep/b ü=%.json", b"new")
    assert (files.read("legs/a.json"), files.read("legs/deep/b ü=%.json")) == (b"", b"new")
    for _ in range(2):
        files.delete("legs/a.json")
        assert files.read("legs/a.json") is None
    assert files.create("legs/a.json", b"again")


def test_one_of_several_concurrent_calls_creates_a_file(tables: Tables) -> None:
    start = Barrier(RIVALS)

    def create(number: int) -> bool:
        start.wait(30)
        return files_in(tables).create("legs/a", f"{number}".encode())

    with ThreadPoolExecutor(RIVALS) as pool:
        created = list(pool.map(create, range(RIVALS)))
    assert sum(created) == 1
    assert files_in(tables).read("legs/a") == f"{created.index(True)}".encode()


def test_readers_see_one_of_two_contents_while_a_file_is_replaced(tables: Tables) -> None:
    files = files_in(tables)
    contents = [bytes([number]) * 5_000 for number in range(2)]
    files.replace("a", contents[0])

    def replace(content: bytes) -> None:
        for _ in range(30):
            files.replace("a", content)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(replace, content) for content in contents]
        while not all(writer.done() for writer in writers):
            assert files.read("a") in contents
        for writer in writers:
            writer.result()


def test_names_folders_and_sizes_are_those_of_one_folder(tables: Tables) -> None:
    files = files_in(tables)
    for name in ("legs/b", "legs/a", "legs/.draft", "legs/deep/c", "legs2/d", "top"):
        files.create(name, name.encode())
    assert list(files.names("legs")) == ["a", "b"]
    assert list(files.names("none")) == []
    assert list(files.folders()) == ["legs", "legs2"]
    assert dict(files_in(tables / "legs").sizes()) == {"a": 6, "b": 6, ".draft": 11, "deep/c": 11}
    assert files_in(tables / "legs").read("a") == b"legs/a"
    assert (tables / "legs").name == "legs"
    assert files.where("legs/a").endswith("tables/legs/a")


@pytest.mark.parametrize("use", [lambda files: files.folders(), lambda files: files.names("none"), lambda files: files.sizes()])
def test_a_folder_without_files_is_empty(tables: Tables, use: Callable[..., object]) -> None:
    if isinstance(tables, Path):
        tables.mkdir()
    assert not use(files_in(tables))

"""A SQLite file is served by one API server at a time; PostgreSQL by any number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import ResourceError
from headrace.store.db.single_instance import exclusive_api
from support.processes.store import DATABASES, database_url


def test_a_second_api_server_on_a_sqlite_file_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    with exclusive_api(url):
        with (
            pytest.raises(ResourceError, match=rf"Another api \(process {os.getpid()}\) serves .*headrace.db") as refused,
            exclusive_api(url),
        ):
            pass
        assert "PostgreSQL" in (refused.value.hint or "")
        with exclusive_api(f"sqlite:///{tmp_path / 'other.db'}"):
            pass
    with exclusive_api(url):
        pass


@pytest.mark.parametrize("kind", [kind for kind in DATABASES if kind != "sqlite"])
def test_several_api_servers_share_a_postgresql_server(kind: str, tmp_path: Path) -> None:
    url = database_url(kind, tmp_path)
    with exclusive_api(url), exclusive_api(url):
        pass


def test_a_folder_as_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="is a folder") as refused, exclusive_api(f"sqlite:///{tmp_path}"):
        pass
    assert f"sqlite:///{tmp_path}/headrace.db" in (refused.value.hint or "")
    with pytest.raises(ResourceError, match=r"Cannot open the database .*: No such file"), exclusive_api(f"sqlite:///{tmp_path}/no/x.db"):
        pass

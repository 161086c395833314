"""Each error ends a command with the exit code that the guide "At three in the morning" documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace import errors
from headrace.cli.main import exit_code, run
from headrace.errors import HeadraceError, SchemaError, UsageError
from headrace.store import open_store

WRONG = (UsageError, SchemaError)


def kinds(of: type[HeadraceError] = HeadraceError) -> Iterator[type[HeadraceError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


DOCUMENTED = sorted((kind for kind in set(kinds()) if kind.__module__ == errors.__name__), key=str)


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_every_error_has_a_documented_exit_code(kind: type[HeadraceError]) -> None:
    assert exit_code(kind.__new__(kind)) == (2 if issubclass(kind, WRONG) else 1)


def test_a_database_of_another_version_ends_with_2_and_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/headrace.db"
    with closing(open_store(url)) as store:
        store.write(lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'r9999'"))
    monkeypatch.setattr(sys, "argv", ["headrace", "db", "status", "--home", str(tmp_path), "--database-url", url])
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    assert "hint" in capfd.readouterr().err

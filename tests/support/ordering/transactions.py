"""Rows that each transaction of an ordering's own database changes, and rows that it reads under the writers' lock."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.store.dialects import driver
from headrace.store.dialects.driver import PostgresqlDriver, SqliteDriver


class Transactions:
    """Counts, from when it is made: `changed` and `read` have the rows of each transaction that took the lock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.changed: list[int] = []
        self.read: list[int] = []
        self._read = 0
        self._before = 0
        self._answers: list[tuple[Any, int]] = []
        self._patch = patch
        for kind in (SqliteDriver, PostgresqlDriver):
            self._count_changes(kind)
        for answers in (driver._Rows, driver._Answer):
            self._count_reads(answers)

    def _count_changes(self, kind: Any) -> None:
        run, end = kind.exec_driver_sql, kind.commit

        def execute(connection: Any, statement: str, parameters: Any = ()) -> Any:
            if kind is SqliteDriver and not connection.begun:
                self._before = connection._raw.total_changes
            answer = run(connection, statement, parameters)
            if connection.begun and not statement.lstrip().startswith("SELECT"):
                self._answers.append((answer, len(parameters) if isinstance(parameters, list) else 0))
            return answer

        def commit(connection: Any) -> None:
            answers, self._answers = self._answers, []
            if connection.begun:
                changed = sum(rows or max(answer.rowcount, 0) for answer, rows in answers)
                self.changed.append(connection._raw.total_changes - self._before if kind is SqliteDriver else changed)
                self.read.append(self._read)
            self._read = 0
            end(connection)

        self._patch.setattr(kind, "exec_driver_sql", execute)
        self._patch.setattr(kind, "commit", commit)

    def _count_reads(self, kind: Any) -> None:
        method = kind.all

        def counted(answer: Any) -> Any:
            rows = method(answer)
            self._read += len(rows)
            return rows

        self._patch.setattr(kind, "all", counted)

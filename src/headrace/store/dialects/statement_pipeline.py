"""Send statements to PostgreSQL without waiting for each result: libpq's pipeline mode, through `psycopg.pq`.

A cursor of psycopg takes about 75 µs of processor time for each statement, more than the server takes to run
it. Here each statement is prepared once for a connection, and psycopg converts only its values. Statements and
their results are sent together when a caller reads a result.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import fetch_many, pipeline_communicate
from psycopg.types.numeric import Int8Dumper

MAX_QUEUED_STATEMENTS: Final = 200
"""Maximum number of statements queued before they are sent."""

_FAILED: Final[frozenset[int]] = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED})
_Key: TypeAlias = tuple[str, tuple[int, ...]]


class PipelineResult:
    """The result of one statement, received when it is first read."""

    __slots__ = ("_pipeline", "prepared", "received")

    def __init__(self, pipeline: StatementPipeline, prepared: _Key | None = None) -> None:
        self._pipeline = pipeline
        self.prepared = prepared
        self.received: pq.abc.PGresult | None = None

    def all(self) -> list[tuple[Any, ...]]:
        """Return the rows.

        Raises:
            psycopg.Error: This statement, or one before it, failed.
        """
        return self._pipeline.rows(self._pipeline.receive(self))

    def scalars(self) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in self.all()]

    @property
    def rowcount(self) -> int:
        """Return the number of rows that the statement changed."""
        return self._pipeline.receive(self).command_tuples or 0


class StatementPipeline:
    """The statements of one connection, for exclusive use. After an error, call `sync` before the next statement."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        # psycopg chooses the type of an integer by its value, so a statement would be prepared once for each
        # combination of sizes
        connection.adapters.register_dumper(int, Int8Dumper)
        self._transformer = Transformer(connection)
        self._prepared: dict[_Key, bytes] = {}
        self._names = 0
        self._commands: deque[Callable[[], None]] = deque()
        self._unreceived: deque[PipelineResult] = deque()
        self._executed = False
        self._failure: pq.abc.PGresult | None = None
        self._pgconn.enter_pipeline_mode()

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> PipelineResult:
        """Queue one statement, with parameters written `%(name)s`."""
        text, names = _numbered(statement)
        transformer = self._transformer
        values = transformer.dump_sequence([parameters[name] for name in names], [PyFormat.AUTO] * len(names))
        types, formats = transformer.types or (), transformer.formats
        name = self._prepared.get((statement, types))
        if name is None:
            self._names += 1
            name = self._prepared[statement, types] = b"h%d" % self._names
            self._queue(partial(self._pgconn.send_prepare, name, text, types), PipelineResult(self, (statement, types)))
        result, self._executed = PipelineResult(self), True
        self._queue(partial(self._pgconn.send_query_prepared, name, values, formats, pq.Format.BINARY), result)
        if len(self._commands) > MAX_QUEUED_STATEMENTS:
            self._connection.wait(self._send())
        return result

    def sync(self) -> None:
        """End the implicit transaction, if a statement began one, and receive every result.

        Raises:
            psycopg.Error: One of the statements failed.
        """
        if not self._executed:
            return
        last, self._executed = PipelineResult(self), False
        self._queue(self._pgconn.pipeline_sync, last)
        self.receive(last)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise errors.error_from_result(failure)

    def receive(self, result: PipelineResult) -> pq.abc.PGresult:
        """Return the server's result of a statement, after receiving all results before it."""
        if result.received is None:
            self._commands.append(self._pgconn.send_flush_request)
            self._connection.wait(self._exchange(result))
        received = result.received
        if received is None or (received.status in _FAILED and self._failure is not None):
            raise errors.error_from_result(self._failure) if self._failure else errors.OperationalError("the connection is lost")
        return received

    def rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of a result."""
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _queue(self, command: Callable[[], None], result: PipelineResult) -> None:
        self._commands.append(command)
        self._unreceived.append(result)

    def _exchange(self, last: PipelineResult) -> PQGen[None]:
        yield from self._send()
        while last.received is None:
            self._take((yield from fetch_many(self._pgconn)))

    def _send(self) -> PQGen[None]:
        """Send the queued statements, and receive the results that have arrived meanwhile."""
        for results in (yield from pipeline_communicate(self._pgconn, self._commands)):
            self._take(results)

    def _take(self, results: list[pq.abc.PGresult]) -> None:
        taken, received = self._unreceived.popleft(), results[-1]
        taken.received = received
        if received.status == pq.ExecStatus.FATAL_ERROR and self._failure is None:
            self._failure = received
        if taken.prepared is not None and received.status != pq.ExecStatus.COMMAND_OK:
            del self._prepared[taken.prepared]


@cache
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the statement in the server's notation, and the names of its parameters in order."""
    names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    text = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", statement)
    return text.encode(), names

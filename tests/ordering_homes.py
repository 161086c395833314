"""The homes of the ordering as the contract's suite and the soak use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from headrace.pipeline.blocks import pack, unpack
from headrace.pipeline.ordering import OrderingProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from headrace.core.handling import HandlingPolicy
from headrace.core.identity import event_key
from headrace.core.ordering import Offered
from headrace.pipeline.kernel import Kernel
from headrace.store.database import Database
from headrace.store.ordering import SqlOrdering
from headrace.store.ordering_scopes import scope_named
from headrace.store.ordering_tables import ORDERING_TABLES
from headrace.store.tables import metadata
from headrace.wire.log import LOG_SCHEMA
from kernel_kit import batch
from ordering_kit import SOURCE, START, Event, Handled
from store_kit import database_url

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SqlScopes:
    """A database of each kind with a new scope for whoever asks; opened when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._databases: dict[str, Database] = {}
        self._names = (f"scope-{n}" for n in count())

    def home(self, kind: str, policy: HandlingPolicy, lookback: int) -> SqlOrdering:
        database = self._databases.get(kind)
        if database is None:
            database = self._databases[kind] = Database(database_url(kind, self._folder))
            database.write(lambda connection: metadata.create_all(connection, tables=ORDERING_TABLES))
        name = next(self._names)
        return SqlOrdering(database, database.write(lambda connection: scope_named(connection, name, lookback)), policy=policy)

    def close(self) -> None:
        for database in self._databases.values():
            database.close()


class Stamped:
    """What the log does before a home of Spark's sees an event: it drops known ids, and says which leaders came before."""

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}
        self.ids: dict[int, str] = {}

    def take(self, events: list[Event]) -> list[tuple[Event, Offered]]:
        out = []
        for event in events:
            if event.id in self.seqs:
                continue
            seq = self.seqs[event.id] = len(self.seqs) + 1
            self.ids[seq] = event.id
            leader = None if event.leader is None else bytes(event_key(SOURCE, event.leader))
            stamp = -1 if event.leader is None else self.seqs.get(event.leader, -1)
            out.append((event, (seq, bytes(event_key(SOURCE, event.id)), leader, stamp, event.occurred, event.id)))
        return out


class KernelHome:
    """The vectorised kernel."""

    def __init__(self, lookback: int) -> None:
        self._log = Stamped()
        self._kernel = Kernel(lookback)

    def step(self, events: list[Event], now: int) -> list[Handled]:
        first = self._kernel.position + 1
        step = self._kernel.step(batch([offered for _, offered in self._log.take(events)]), now)
        told = zip(step.seqs.tolist(), step.mark_column().to_pylist(), strict=True)
        return [Handled(self._log.ids[seq], mark, position) for position, (seq, mark) in enumerate(told, first)]

    def waiting(self) -> set[str]:
        return set(self._kernel.waiting.id.to_pylist())


class SparkHome:
    """The stage that keeps what waits in Spark's state, without a JVM."""

    def __init__(self, lookback: int) -> None:
        self._log = Stamped()
        self._tester = TwsTester(OrderingProcessor(lookback))
        self._handled: set[str] = set()

    def step(self, events: list[Event], now: int) -> list[Handled]:
        rows = [self._row(event, offered) for event, offered in self._log.take(events)]
        block = pack(pa.Table.from_pylist(rows, schema=LOG_SCHEMA)) if rows else None
        frame = pd.DataFrame({"shard": [0, 0], "first": [len(self._log.seqs), len(self._log.seqs) + 1], "clock": [now - START] * 2})
        frame["block"] = [block, None]
        answer: Any = self._tester.testInPandas(0, frame)
        (row,) = answer.to_dict("records")
        if row["block"] is None:
            return []
        out = [Handled(one["id"], one["mark"], one["position"]) for one in unpack(row["block"]).to_pylist()]
        self._handled |= {one.id for one in out}
        return out

    def waiting(self) -> set[str]:
        return set(self._log.seqs) - self._handled

    def _row(self, event: Event, offered: Offered) -> dict[str, object]:
        seq, key, leader, stamp, occurred, id = offered
        moment = EPOCH + timedelta(microseconds=occurred)
        keys = {"seq": seq, "key": key, "leader_key": leader, "leader_seq": stamp, "id": id, "follows": event.follows}
        nothing = dict.fromkeys(("subject", "trace"))
        return keys | nothing | {"source": SOURCE, "type": "leg", "occurred": moment, "received": moment, "payload": "{}", "triggers": []}

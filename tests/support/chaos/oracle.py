"""Check a chaos run: no event lost or repeated, lanes in order, and no two owners of a trigger at the same time."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from sqlalchemy.engine import make_url

from headrace.client.admin.client import AdminClient
from headrace.wire.calls import admin as calls
from support.chaos.feed import Load

_COLUMNS: Final = "trigger_id, old_job, job, old_revoked, old_epoch, epoch, old_state"
_VALUES: Final = (
    "OLD.id, OLD.job_id, NEW.job_id, OLD.revoked_job_id, OLD.epoch, NEW.epoch, (SELECT state FROM jobs WHERE jobs.id = OLD.job_id)"
)
_TABLE: Final = (
    "CREATE TABLE chaos_claims (number {number} PRIMARY KEY, trigger_id BIGINT, old_job BIGINT, job BIGINT,"
    " old_revoked BIGINT, old_epoch BIGINT, epoch BIGINT, old_state TEXT)"
)
_ON_SQLITE: Final = (
    _TABLE.format(number="INTEGER"),
    (
        "CREATE TRIGGER chaos_claims AFTER UPDATE OF job_id, epoch ON triggers"
        " WHEN OLD.job_id IS NOT NEW.job_id OR OLD.epoch <> NEW.epoch"
        f" BEGIN INSERT INTO chaos_claims ({_COLUMNS}) VALUES ({_VALUES}); END"
    ),
)
_ON_POSTGRESQL: Final = (
    _TABLE.format(number="BIGSERIAL"),
    (
        "CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN INSERT INTO chaos_claims ({_COLUMNS}) VALUES ({_VALUES}); RETURN NULL; END $$"
    ),
    (
        "CREATE TRIGGER chaos_claims AFTER UPDATE OF job_id, epoch ON triggers FOR EACH ROW"
        " WHEN (OLD.job_id IS DISTINCT FROM NEW.job_id OR OLD.epoch <> NEW.epoch) EXECUTE FUNCTION chaos_note()"
    ),
)


@dataclass
class Oracle:
    """Reads the database behind the api's back, and the books through every api; knows from the load what must have become of it."""

    folder: Path
    load: Load
    database: str
    urls: Sequence[str]

    def watch_claims(self) -> None:
        """Have the database write down who takes and leaves which trigger, in the transaction that does it."""
        for statement in _ON_POSTGRESQL if self._on_postgresql else _ON_SQLITE:
            self.rows(statement)

    @property
    def _on_postgresql(self) -> bool:
        return self.database.startswith("postgresql")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if self._on_postgresql:
            with psycopg.connect(self.database, autocommit=True) as connection:
                cursor = connection.execute(query.encode())
                return cursor.fetchall() if cursor.description else []
        path = make_url(self.database).database
        with closing(sqlite3.connect(str(path), timeout=30)) as file:
            found = file.execute(query).fetchall()
            file.commit()
            return found

    def settled(self, patience: float, keep: Callable[[], None] = lambda: None) -> None:
        """Wait until every trigger has fired as often as it is to, and nothing is left anywhere; `keep` is called meanwhile."""
        wanted = {name: len(numbers) for name, numbers in self.load.expected().items()}
        limit = time.monotonic() + patience
        while (missing := self._missing(wanted)) is not None:
            if time.monotonic() > limit:
                raise AssertionError(f"waited {patience:g} s in vain: {missing}, streams {self._streams()}")
            keep()
            time.sleep(0.5)

    def keep_evidence(self) -> None:
        """Leave what the database says in the folder: its server goes with the run."""
        for table in (
            "chaos_claims",
            "jobs",
            "events",
            "firings",
            "triggers",
            "lanes",
            "dead_letters",
            "backlog",
            "receipt_problems",
            "subscriber_sets",
            "trigger_answers",
        ):
            with (self.folder / f"{table}.txt").open("w") as file:
                file.writelines(f"{row}\n" for row in self.rows(f"SELECT * FROM {table}"))

    def judge(self) -> dict[str, int]:
        """Fail with all violations; return the checked counts."""
        expected = self.load.expected()
        events = self._log(expected)
        letters = self.rows("SELECT kind, reason, raw, triggers FROM dead_letters")
        assert not letters, f"{len(letters)} dead letters: {letters[:5]}"
        claims = self._claims()
        for url in self.urls:
            with AdminClient(url, timeout=60) as client:
                audit = client.get(calls.GET_AUDIT)
            assert audit["clean"], [one for one in audit["streams"] if one["problems"] or not all(t["balanced"] for t in one["triggers"])]
            read = {one["stream"]: one["read"] for one in audit["streams"]}
            assert sum(read.values()) == self.load.sent(), read
            self._balanced(audit, expected)
        return {"messages": self.load.sent(), "events": events, "firings": sum(map(len, expected.values())), "claims": claims}

    def _missing(self, wanted: Mapping[str, int]) -> str | None:
        counts = dict(self.rows("SELECT t.name, count(*) FROM firings f JOIN triggers t ON t.id = f.trigger_id GROUP BY t.name"))
        behind = {name: f"{counts.get(name, 0)} of {count}" for name, count in wanted.items() if counts.get(name, 0) < count}
        left = self.load.left()
        ((backlog,),) = self.rows("SELECT coalesce(sum(backlog), 0) FROM triggers WHERE state <> 'removed'")
        if not behind and not left and not backlog:
            return None
        lease = "stream, job_id, revoked_job_id, epoch, state"
        held = self.rows(f"SELECT {lease}, count(*) FROM triggers GROUP BY {lease}")
        jobs = self.rows("SELECT id, state, desired_state FROM jobs WHERE state = 'running'")
        return f"{len(behind)} behind {dict(list(behind.items())[:10])}, left {left}, backlog {backlog}, held {held}, jobs {jobs}"

    def _streams(self) -> list[dict[str, Any]]:
        """Return what the api reports of each stream, without what is 0 or empty."""
        with AdminClient(self.urls[-1], timeout=60) as client:
            streams = client.get(calls.LIST_STREAMS)["streams"]
        return [{name: value for name, value in one.items() if value} for one in streams]

    def _log(self, expected: Mapping[str, list[int]]) -> int:
        """Every message is in the log once for what was declared on its stream, and once for each that made an event of it; in order."""
        found = self.rows(
            "SELECT e.seq, e.payload, e.stream, e.lane, t.name FROM events e LEFT JOIN firings f ON f.seq = e.seq"
            " LEFT JOIN triggers t ON t.id = f.trigger_id ORDER BY e.seq"
        )
        fired: dict[str, Counter[int]] = defaultdict(Counter)
        events: dict[int, tuple[str, str, int]] = {}
        lanes: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
        for seq, payload, stream, lane, name in found:
            value = msgspec.json.decode(payload)
            assert name is not None, f"event {seq} fired nobody"
            events[seq] = (stream, value.get("by", ""), value["n"])
            fired[name][value["n"]] += 1
            lanes[stream, lane, name].append(value["n"])
        twice = {what: times for what, times in Counter(events.values()).items() if times > 1}
        assert not twice, f"in the log more than once: {len(twice)}, such as {list(twice)[:5]}"
        seqs = sorted(events)
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "the log has gaps"
        for name, numbers in expected.items():
            missing, strange = sorted(set(numbers) - fired[name].keys()), sorted(fired[name].keys() - set(numbers))
            repeated = [n for n, times in fired[name].items() if times > 1]
            assert (missing, strange, repeated) == ([], [], []), name
        mixed = {what: numbers for what, numbers in lanes.items() if numbers != sorted(numbers)}
        assert not mixed, f"{len(mixed)} lanes are out of order for a trigger, such as {next(iter(mixed.items()))}"
        return len(events)

    def _claims(self) -> int:
        """Nobody took what another had, each owner has an epoch of its own, and nobody who lived lost what it had not let go."""
        found = self.rows(f"SELECT {_COLUMNS} FROM chaos_claims ORDER BY number")
        holders: dict[int, int | None] = {}
        taken = 0
        for trigger, old, new, revoked, old_epoch, epoch, state in found:
            what = f"trigger {trigger}: {old} ({state}, revoked {revoked}) at {old_epoch} -> {new} at {epoch}"
            assert holders.get(trigger) == old, what
            if old is None:
                assert epoch == old_epoch + 1, what
                assert revoked in (None, new), what
                taken += 1
            else:
                assert new is None, what
                assert epoch == old_epoch, what
                assert state != "running" or revoked == old, what
            holders[trigger] = new
        return taken

    @staticmethod
    def _balanced(audit: Mapping[str, Any], expected: Mapping[str, list[int]]) -> None:
        books = {one["trigger"]: one for stream in audit["streams"] for one in stream["triggers"]}
        for name, numbers in expected.items():
            one = books[name]
            assert (one["fired"], one["pending"], one["failed"], one["rejected"]) == (len(numbers), 0, 0, 0), (len(numbers), one)

"""The API's ledger of a scope's runs, read page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.admin.client import AdminClient
from headrace.wire.calls.admin import (
    GET_LEDGER_DEAD_LETTERS,
    GET_LEDGER_FIRINGS,
    GET_LEDGER_OPEN_RUNS,
    GET_LEDGER_RUNS,
    GET_LEDGER_STATE,
    GET_SCOPE_LEDGER,
)
from headrace.wire.calls.call import Query
from headrace.wire.pipelines.plans import OpenRun
from headrace.wire.pipelines.scope_audit import LedgerDeadLetter, LedgerRun, ScopeLedger

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Firings(NamedTuple):
    """Firings: the seq of each one's event, its trigger's id, and the names of the triggers by id."""

    seqs: npt.NDArray[np.int64]
    fired: npt.NDArray[np.int64]
    names: dict[int, str]


def read_ledger(client: AdminClient, scope: str) -> ScopeLedger:
    """Return the position of the scope. Raises `ApiRefused` if no scope has this name."""
    return client.request(GET_SCOPE_LEDGER, None, scope=scope)


def read_state(client: AdminClient, ledger: ScopeLedger) -> dict[str, bytes]:
    """Return the state of the scope, as its driver wrote it."""
    entries: dict[str, bytes] = {}
    after: str | None = ""
    while after is not None:
        query: Query = {"incarnation": ledger.incarnation, "after": after}
        page = client.request(GET_LEDGER_STATE, None, query=query, scope=ledger.scope)
        entries |= page.entries
        after = page.after
    return entries


def read_open_runs(client: AdminClient, ledger: ScopeLedger) -> list[OpenRun]:
    """Return the open runs of the scope."""
    runs: list[OpenRun] = []
    while True:
        after = {"batch": runs[-1].batch, "number": runs[-1].number} if runs else {}
        page = client.request(GET_LEDGER_OPEN_RUNS, None, query={"incarnation": ledger.incarnation, **after}, scope=ledger.scope).runs
        if not page:
            return runs
        runs += page


def read_dead_letters(client: AdminClient, scope: str) -> Iterator[LedgerDeadLetter]:
    """Yield the scope's dead letters."""
    after: str | None = ""
    while after is not None:
        page = client.request(GET_LEDGER_DEAD_LETTERS, None, query={"after": after}, scope=scope)
        yield from page.dead_letters
        after = page.after


def read_runs(client: AdminClient, scope: str) -> Iterator[LedgerRun]:
    """Yield the scope's runs that succeeded."""
    after: str | None = ""
    while after is not None:
        page = client.request(GET_LEDGER_RUNS, None, query={"after": after}, scope=scope)
        yield from page.runs
        after = page.after


def read_firings(client: AdminClient, ledger: ScopeLedger, first: int) -> Firings:
    """Return the firings that the scope has read, on the event `first` and later ones."""
    import numpy as np  # here, since only `headrace audit --tables` needs it

    seqs, fired = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    names: dict[int, str] = {}
    after: dict[str, int] = {"after": first - 1}
    while after:
        query: Query = {"to": ledger.cursor, "last_redelivery_id": ledger.last_redelivery_id, **after}
        page = client.request(GET_LEDGER_FIRINGS, None, query=query, scope=ledger.scope)
        seqs.append(np.array(page.seqs, dtype=np.int64))
        fired.append(np.array(page.fired, dtype=np.int64))
        names |= page.names
        after = {} if page.after is None else {"after": page.after.seq, "trigger": page.after.trigger}
    return Firings(np.concatenate(seqs), np.concatenate(fired), names)

"""What the API knows of a scope's runs, read page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.client.admin.client import AdminClient
from headrace.wire.pipelines.plans import OpenRun, OpenRuns, ScopeState
from headrace.wire.pipelines.scope_audit import LedgerFirings, LedgerLetter, LedgerLetters, LedgerRun, LedgerRuns, ScopeLedger


class Firings(NamedTuple):
    """Firings: the seq of each one's event, its trigger's id, and the names of the triggers by id."""

    seqs: npt.NDArray[np.int64]
    fired: npt.NDArray[np.int64]
    names: dict[int, str]


def read_ledger(client: AdminClient, scope: str) -> ScopeLedger:
    """Return how far the scope is. Raises `ApiRefused` where there is none of this name."""
    return ScopeLedger.model_validate(client.scope_ledger(scope))


def read_state(client: AdminClient, ledger: ScopeLedger) -> dict[str, bytes]:
    """Return the state of the scope, as its driver wrote it."""
    entries: dict[str, bytes] = {}
    after: str | None = ""
    while after is not None:
        found = client.scope_ledger(ledger.scope, "state", incarnation=ledger.incarnation, after=after)
        page = ScopeState.model_validate_json(msgspec.json.encode(found))  # base64 is bytes in JSON alone
        entries |= page.entries
        after = page.after
    return entries


def read_open_runs(client: AdminClient, ledger: ScopeLedger) -> list[OpenRun]:
    """Return the open runs of the scope."""
    runs: list[OpenRun] = []
    while True:
        after = {"batch": runs[-1].batch, "number": runs[-1].number} if runs else {}
        found = client.scope_ledger(ledger.scope, "open", incarnation=ledger.incarnation, **after)
        page = OpenRuns.model_validate_json(msgspec.json.encode(found)).runs
        if not page:
            return runs
        runs += page


def read_letters(client: AdminClient, scope: str) -> Iterator[LedgerLetter]:
    """Yield the scope's dead letters."""
    after: str | None = ""
    while after is not None:
        page = LedgerLetters.model_validate(client.scope_ledger(scope, "letters", after=after))
        yield from page.letters
        after = page.after


def read_runs(client: AdminClient, scope: str) -> Iterator[LedgerRun]:
    """Yield the scope's runs that succeeded."""
    after: str | None = ""
    while after is not None:
        page = LedgerRuns.model_validate(client.scope_ledger(scope, "runs", after=after))
        yield from page.runs
        after = page.after


def read_firings(client: AdminClient, ledger: ScopeLedger, first: int) -> Firings:
    """Return the firings that the scope has read, on the event `first` and later ones."""
    seqs, fired = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    names: dict[int, str] = {}
    after: dict[str, int] = {"after": first - 1}
    while after:
        page = LedgerFirings.model_validate(client.scope_ledger(ledger.scope, "firings", to=ledger.cursor, again=ledger.again, **after))
        seqs.append(np.array(page.seqs, dtype=np.int64))
        fired.append(np.array(page.fired, dtype=np.int64))
        names |= page.names
        after = {} if page.after is None else {"after": page.after.seq, "trigger": page.after.trigger}
    return Firings(np.concatenate(seqs), np.concatenate(fired), names)

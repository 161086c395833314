"""What the API knows of a scope's runs, read page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.client.people import PeopleClient
from headrace.wire.scope_audit import LedgerFirings, LedgerLetter, LedgerLetters, LedgerRun, LedgerRuns, ScopeLedger


class Firings(NamedTuple):
    """Firings: the seq of each one's event, its trigger's id, and the names of the triggers by id."""

    seqs: npt.NDArray[np.int64]
    fired: npt.NDArray[np.int64]
    names: dict[int, str]


def read_ledger(client: PeopleClient, scope: str) -> ScopeLedger:
    """Return how far the scope is. Raises `ApiRefused` where there is none of this name."""
    return ScopeLedger.model_validate(client.scope_ledger(scope))


def read_letters(client: PeopleClient, scope: str) -> Iterator[LedgerLetter]:
    """Yield the scope's dead letters."""
    after: str | None = ""
    while after is not None:
        page = LedgerLetters.model_validate(client.scope_ledger(scope, "letters", after=after))
        yield from page.letters
        after = page.after


def read_runs(client: PeopleClient, scope: str) -> Iterator[LedgerRun]:
    """Yield the scope's runs that succeeded."""
    after: str | None = ""
    while after is not None:
        page = LedgerRuns.model_validate(client.scope_ledger(scope, "runs", after=after))
        yield from page.runs
        after = page.after


def read_firings(client: PeopleClient, ledger: ScopeLedger, first: int) -> Firings:
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

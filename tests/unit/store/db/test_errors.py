from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from headrace.errors import ApiRefused, HeadraceError, ResourceError, StorageBusy, StorageFull
from headrace.store.db.errors import display_name, explain, is_rolled_back

URL = make_url("postgresql+psycopg://me:s3cret@db.example:5433/events?sslpassword=s3cret")


class Failed(Exception):
    """A driver's error."""

    def __init__(self, words: str, sqlstate: str | None = None) -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


def failed(words: str, sqlstate: str | None = None, *, gone: bool = False, kind: str = "Error") -> DBAPIError:
    return DBAPIError("SELECT 1", None, type(kind, (Failed,), {})(words, sqlstate), connection_invalidated=gone)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("57P01", StorageBusy),
        ("08006", StorageBusy),
        ("53300", StorageBusy),
        ("40P01", StorageBusy),
        ("55P03", StorageBusy),
        ("53100", StorageFull),
        ("25006", StorageFull),
        ("42501", ResourceError),
        ("22003", ApiRefused),
        ("54000", ApiRefused),
    ],
)
def test_a_postgresql_state_becomes_an_error_with_a_hint(state: str, kind: type[HeadraceError]) -> None:
    told = explain(failed("…", state), URL)
    assert type(told) is kind
    assert told.hint


def test_a_defect_of_a_statement_is_not_explained() -> None:
    assert explain(failed("syntax error", "42601"), URL) is None


def test_errors_and_names_do_not_contain_the_password() -> None:
    assert display_name(URL) == "postgresql://me@db.example:5433/events"
    told = explain(failed('connection failed: "s3cret" is no name', kind="OperationalError"), URL)
    assert isinstance(told, StorageBusy)
    assert "s3cret" not in str(told)


def test_a_transaction_that_was_certainly_rolled_back_is_recognised() -> None:
    assert is_rolled_back(failed("deadlock", "40P01"))
    assert is_rolled_back(failed("server closed the connection", gone=True))
    assert not is_rolled_back(failed("duplicate key", "23505"))

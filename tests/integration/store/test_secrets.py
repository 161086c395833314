"""Stored secrets and arguments of triggers: encrypted, decrypted with any of the keys, and rotated in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text

from headrace.errors import ApiRefused, Fenced, SettingsError
from headrace.store import Store, open_store
from headrace.store.keyring import Keyring
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.secrets import RotateSecrets, SetConnection, SetVariable
from support.processes.store import DATABASES, TurnedClock, arguments, database_url, declaration, holder

OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))
SECRET = "swordfish-7"
WAREHOUSE = SetConnection(kind="postgresql", host="db", login="ada", password=SECRET, extra={"api_key": SECRET})


class Place(NamedTuple):
    """A database: of which kind, and the folder that names it."""

    kind: str
    folder: Path

    @property
    def url(self) -> str:
        return database_url(self.kind, self.folder)


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def opened(place: Place, *keys: str, **other: Any) -> Store:
    return open_store(place.url, keyring=Keyring(keys), clock=TurnedClock(), **other)


def rows(store: Store, query: str) -> list[Any]:
    with store.reading() as connection:
        return list(connection.execute(text(query)).all())


def rotated(store: Store) -> tuple[int, int, list[str]]:
    """Rotate to the end, batch by batch; return how many were sealed anew, how many were current, and what no key opens."""
    answer = store.rotation.batch(RotateSecrets())
    total = [answer.rotated, answer.current]
    unreadable = list(answer.unreadable)
    while answer.after is not None:
        answer = store.rotation.batch(RotateSecrets(after=answer.after))
        total = [total[0] + answer.rotated, total[1] + answer.current]
        unreadable += answer.unreadable
    return total[0], total[1], unreadable


def filled(place: Place, key: str) -> None:
    """A database with one secret of each kind, its store closed."""
    store = opened(place, key)
    job = holder(store).job_id
    store.projects.declare(job, "flights", declaration("first", api_key=SECRET))
    store.secrets.set_connection("warehouse", WAREHOUSE)
    store.secrets.set_variable("greeting", SetVariable(value=SECRET))
    store.close()


def test_the_database_file_contains_no_plain_secret(tmp_path: Path) -> None:
    filled(Place("sqlite", tmp_path), NEW)
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_only_a_running_job_reads_secrets(place: Place) -> None:
    filled(place, NEW)
    store = opened(place, NEW)
    owner = holder(store)
    found = store.secrets.connection(owner.job_id, "warehouse")
    assert (found.kind, found.login, found.password, found.extra) == ("postgresql", "ada", SECRET, {"api_key": SECRET})
    assert store.secrets.variable(owner.job_id, "greeting").value == SECRET
    for what, ask in (("connection", store.secrets.connection), ("variable", store.secrets.variable)):
        with pytest.raises(ApiRefused, match=f"no {what} 'nothing'") as missing:
            ask(owner.job_id, "nothing")
        assert missing.value.status == 404
    store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
    with pytest.raises(Fenced):
        store.secrets.connection(owner.job_id, "warehouse")
    store.close()


def test_summaries_hide_the_values_of_secrets(place: Place) -> None:
    filled(place, NEW)
    store = opened(place, NEW)
    store.secrets.set_variable("region", SetVariable(value="eu", secret=False))
    (shown,) = store.secrets.connection_summaries()
    assert (shown.password, shown.extra, shown.login) == ("***", ["api_key"], "ada")
    assert [(one.key, one.value) for one in store.secrets.variable_summaries()] == [("greeting", "***"), ("region", "eu")]
    store.close()


def test_a_rotation_encrypts_all_secrets_with_the_new_key(place: Place) -> None:
    filled(place, OLD)
    store = opened(place, NEW, OLD)
    assert rotated(store) == (3, 0, [])
    assert rotated(store) == (0, 3, []), "done again, it does nothing"
    store.close()
    store = opened(place, NEW)
    owner = holder(store)
    assert store.secrets.connection(owner.job_id, "warehouse").password == SECRET
    (workload,) = store.triggers.workloads(owner.job_id, [1])
    assert arguments(workload) == {"api_key": SECRET}
    store.close()


def test_an_interrupted_rotation_continues(place: Place) -> None:
    filled(place, OLD)
    store = opened(place, NEW, OLD)
    answer = store.rotation.batch(RotateSecrets())
    assert (answer.rotated, answer.after) == (1, "connection:")
    store.close()
    store = opened(place, OLD, NEW)  # both keys are still there, whichever comes first
    assert store.secrets.connection(holder(store).job_id, "warehouse").password == SECRET
    store.close()
    store = opened(place, NEW, OLD)
    assert rotated(store) == (2, 1, [])
    store.close()


def test_an_invalid_position_of_a_rotation_is_refused(place: Place) -> None:
    store = opened(place, NEW)
    for after in ("nothing:1", "trigger:x", f"trigger:{2**63}", "'; DROP TABLE triggers; --"):
        with pytest.raises(ApiRefused, match="No batch ended") as refused:
            store.rotation.batch(RotateSecrets(after=after))
        assert refused.value.status == 422
    store.close()


def test_a_database_encrypted_with_another_key_is_refused(place: Place) -> None:
    filled(place, OLD)
    with pytest.raises(SettingsError, match="another key") as refused:
        opened(place, OTHER)
    assert "HEADRACE_FERNET_KEYS" in (refused.value.hint or "")
    assert OLD not in str(refused.value)


def test_secrets_of_a_lost_key_are_reported_and_can_be_set_again(place: Place) -> None:
    filled(place, OLD)
    store = opened(place, OTHER, discard_secrets=True)
    owner = holder(store)
    with pytest.raises(ApiRefused, match="No key of this api opens connection 'warehouse'") as refused:
        store.secrets.connection(owner.job_id, "warehouse")
    assert (refused.value.status, refused.value.problem) == (409, "unreadable")
    (workload,) = store.triggers.workloads(owner.job_id, [1])
    assert (arguments(workload), "trigger 'first'" in (workload.load_error or "")) == ({}, True)
    assert "opens connection" in (store.secrets.connection_summaries()[0].error or "")
    assert rotated(store)[2] == ["the arguments of trigger 'first' of project 'flights'", "connection 'warehouse'", "variable 'greeting'"]
    store.projects.declare(owner.job_id, "flights", declaration("first", api_key=SECRET))
    store.secrets.set_connection("warehouse", WAREHOUSE)
    owner.load()
    assert store.triggers.workloads(owner.job_id, [1])[0].load_error is None
    assert store.secrets.connection(owner.job_id, "warehouse").password == SECRET
    store.close()


def test_an_equal_declaration_changes_nothing_even_after_a_key_change(place: Place) -> None:
    filled(place, OLD)
    for keys in ((OLD,), (NEW, OLD)):
        store = opened(place, *keys)
        owner = holder(store)
        store.projects.declare(owner.job_id, "flights", declaration("first", api_key=SECRET))
        assert owner.load() == {1: owner.epochs[1]}, "the lease is still the same"
        before = owner.epochs[1]
        store.projects.declare(owner.job_id, "flights", declaration("first", api_key="another"))
        store.projects.declare(owner.job_id, "flights", declaration("first", api_key=SECRET))
        assert owner.load()[1] > before, "what changed is claimed anew"
        store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
        store.close()


def test_equal_arguments_of_two_triggers_have_different_ciphertexts_and_digests(place: Place) -> None:
    store = opened(place, NEW)
    store.projects.declare(holder(store).job_id, "flights", declaration("first", "second", api_key=SECRET))
    (one, two) = rows(store, "SELECT kwargs, kwargs_digest FROM triggers")
    assert one.kwargs != two.kwargs
    assert one.kwargs_digest != two.kwargs_digest
    store.close()


def test_a_store_without_a_key_refuses_secrets(place: Place) -> None:
    store = opened(place)
    with pytest.raises(ApiRefused, match="no key to keep secrets under"):
        store.secrets.set_variable("greeting", SetVariable(value=SECRET))
    store.close()


@pytest.mark.parametrize("key", ["", "short", "a" * 44 + "b", "é" * 44])
def test_the_error_for_an_invalid_key_does_not_contain_it(key: str) -> None:
    with pytest.raises(SettingsError, match="32 bytes") as refused:
        Keyring([key])
    assert not key or key not in str(refused.value)

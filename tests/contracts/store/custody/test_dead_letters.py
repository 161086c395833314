"""The contract of dead letters: one retry for each redrive, closed after an answer, open again after a failure, and never lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.dead_letters import texts as letter_texts
from headrace.store.queries.events import dead_letter_detail, dead_letter_page
from headrace.store.retention.retention import discarded_dead_letters
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import dead_letter_texts, dead_letters
from headrace.wire.custody.backlog import Answer
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.status.status import DeadLetterDetail
from support.processes.store import DATABASES, START, Holder, declaration, holder, letter, opened
from support.sources.custody import answered, books, bury, counts, receipt, record, settle, some, waiting


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def detail_of(store: Store, id: str = "x") -> DeadLetterDetail | None:
    with store.reading() as connection:
        return dead_letter_detail(connection, id)


def state(store: Store, id: str = "x") -> str | None:
    found = detail_of(store, id)
    return None if found is None else found.state


def texts(store: Store) -> list[str]:
    with store.reading() as connection:
        return list(connection.execute(select(dead_letter_texts.c.dead_letter_id).order_by(dead_letter_texts.c.dead_letter_id)).scalars())


def rejected(store: Store) -> dict[int, int]:
    with store.reading() as connection:
        return {row.id: row.rejected for row in connection.execute(select(triggers))}


GIVEN_UP = pytest.mark.parametrize("answer", ["dead_lettered", "rejected"])


def test_a_redriven_dead_letter_is_closed_after_the_answers_of_all_triggers(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, 2, lane="a", position=7, raw="the text"))
    assert store.dead_letters.redrive(some("x")).count == 1
    assert state(store) == "redriven"
    for trigger in (1, 2):
        assert [(item.stream, item.lane, item.position, item.raw) for item in waiting(owner, trigger)] == [("folder", "a", 7, "the text")]
    settle(owner, "fired", trigger=1)
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.triggers) == ("redriven", ["second"])
    settle(owner, "filtered", trigger=2)
    assert detail_of(store) is None


def test_a_repeated_redrive_changes_nothing(store: Store, owner: Holder) -> None:
    bury(owner, letter("x"), letter("y"))
    store.dead_letters.redrive(some("x"))
    again = store.dead_letters.redrive(some("x", "y", "x", "none"))
    assert again.count == 1
    assert [(one.id, one.why) for one in again.skipped] == [
        ("none", "there is no such dead letter (any more)"),
        ("x", "it is redriven already"),
    ]
    assert len(waiting(owner)) == 2


@GIVEN_UP
def test_a_dead_letter_without_a_position_fails_again_as_one_dead_letter(store: Store, owner: Holder, answer: Answer) -> None:
    bury(owner, *(letter(f"folder/id opening-{number}/rejected/1", lane="a", raw="tick") for number in range(2)))
    store.dead_letters.redrive(some("folder/id opening-0/rejected/1"))
    (item,) = waiting(owner)
    again = f"folder/id backlog-{item.number}/rejected/1"
    assert bury(owner, letter(again, lane="a", raw="tick")) == ["stored"]
    settle(owner, answer)
    assert detail_of(store, "folder/id opening-0/rejected/1") is None
    assert (state(store, again), state(store, "folder/id opening-1/rejected/1")) == ("open", "open")


def test_a_dead_letter_with_a_truncated_text_is_not_redriven(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", raw="the beginning […]"))
    assert [one.why for one in store.dead_letters.redrive(some("x")).skipped] == ["its text is too long to have been kept whole"]


@GIVEN_UP
def test_a_dead_letter_that_fails_again_is_open_with_more_attempts(store: Store, owner: Holder, answer: Answer) -> None:
    bury(owner, letter("x", 1, 2, attempts=5))
    store.dead_letters.redrive(some("x"))
    again = letter("x", 1, kind="failed", reason="still broken", attempts=5, traceback=["line 1"])
    assert bury(owner, again) == ["duplicate"]
    assert bury(owner, again) == ["duplicate"], "the answer was lost, and it was sent again"
    settle(owner, answer, trigger=1)
    settle(owner, "fired", trigger=2)
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.attempts, found.reason, found.traceback, found.triggers) == (
        "open",
        10,
        "still broken",
        ["line 1"],
        ["first"],
    )
    assert store.dead_letters.redrive(some("x")).count == 1
    assert (len(waiting(owner, 1)), len(waiting(owner, 2))) == (1, 0)


@GIVEN_UP
def test_a_redriven_dead_letter_reopens_without_a_new_dead_letter(store: Store, owner: Holder, answer: Answer) -> None:
    bury(owner, letter("x"))
    store.dead_letters.redrive(some("x"))
    settle(owner, answer)
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.attempts) == ("open", 2)


def test_a_redriven_dead_letter_reopens_with_the_reason_of_its_new_failure(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", reason="no schema"))
    store.dead_letters.redrive(some("x"))
    settle(owner, "dead_lettered", reason="not of its schema\0")
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.attempts, found.reason) == ("open", 2, "not of its schema\N{REPLACEMENT CHARACTER}")


@GIVEN_UP
def test_a_dead_letter_that_fails_with_another_id_takes_that_id(store: Store, owner: Holder, answer: Answer) -> None:
    bury(owner, letter("x", lane="a", position=3))
    store.dead_letters.redrive(some("x"))
    bury(owner, letter("x-again", lane="a", position=3, kind="failed"))
    settle(owner, answer)
    assert (detail_of(store), state(store, "x-again")) == (None, "open")


def test_a_repeated_dead_letter_adds_its_triggers_to_the_known_one(store: Store, owner: Holder) -> None:
    assert bury(owner, letter("x", 1), letter("x", 2)) == ["stored", "duplicate"]
    assert bury(owner, letter("y", 1)) == ["stored"]
    assert bury(owner, letter("y", 2), letter("y", 1, 2)) == ["duplicate", "duplicate"]
    for id in ("x", "y"):
        found = detail_of(store, id)
        assert found is not None
        assert (found.state, found.triggers, found.attempts) == ("open", ["first", "second"], 1)
    assert rejected(store) == {1: 2, 2: 2}


def test_a_redriven_dead_letter_reopens_with_the_triggers_of_its_repetition(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1))
    store.dead_letters.redrive(some("x"))
    assert bury(owner, letter("x", 1, 2)) == ["duplicate"]
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.triggers) == ("open", ["first", "second"])
    assert rejected(store) == {1: 1, 2: 1}
    assert store.dead_letters.redrive(some("x")).count == 1
    assert [len(waiting(owner, trigger)) for trigger in (1, 2)] == [1, 1]


@GIVEN_UP
def test_a_reopened_dead_letter_is_not_deleted_for_another_one_of_its_raw_event(store: Store, owner: Holder, answer: Answer) -> None:
    one, other = (letter(f"folder/a/7/event/{id}/1", 1, lane="a", position=7, kind="failed") for id in "AB")
    bury(owner, one, other)
    store.dead_letters.redrive(some(one.id))
    assert bury(owner, one) == ["duplicate"]
    settle(owner, answer)
    assert (state(store, one.id), state(store, other.id)) == ("open", "open")


def test_a_redriven_dead_letter_opens_again_for_triggers_that_were_absent(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, 2, lane="a", position=7))
    store.projects.declare(owner.job_id, "flights", declaration("first"))
    assert store.dead_letters.redrive(some("x")).count == 1
    assert state(store) == "redriven"
    settle(owner, "fired", trigger=1)
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.triggers, found.attempts) == ("open", ["second"], 1)
    store.projects.declare(owner.job_id, "flights", declaration("first", "second"))
    owner.load()
    assert store.dead_letters.redrive(some("x")).count == 1
    settle(owner, "fired", trigger=2)
    assert detail_of(store) is None


def test_a_redriven_dead_letter_stays_redriven_while_a_trigger_has_it(store: Store, owner: Holder) -> None:
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", "third"))
    owner.load()
    bury(owner, letter("x", 1, 2, 3, lane="a", position=7))
    store.projects.declare(owner.job_id, "flights", declaration("first", "second"))
    store.dead_letters.redrive(some("x"))
    settle(owner, "fired", trigger=1)
    assert state(store) == "redriven"
    settle(owner, "filtered", trigger=2)
    assert state(store) == "open"


def test_a_redrive_forgets_the_triggers_of_ended_task_runs(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, 2))
    ended = update(triggers).where(triggers.c.id == 2).values(state="removed", run_id="run")
    store.prune(lambda connection: connection.execute(ended).rowcount)
    assert store.dead_letters.redrive(some("x")).count == 1
    settle(owner, "fired", trigger=1)
    assert detail_of(store) is None


def test_a_dead_letter_of_very_many_triggers_can_be_redriven(store: Store, owner: Holder) -> None:
    bury(owner, letter("x"))
    many = update(dead_letters).values(triggers=str(list(range(1, 300_001))))
    store.prune(lambda connection: connection.execute(many).rowcount)
    assert store.dead_letters.redrive(some("x")).count == 1
    assert len(waiting(owner)) == 1


def test_a_discarded_dead_letter_stays_visible_and_can_be_redriven(store: Store, owner: Holder) -> None:
    bury(owner, letter("x"), letter("y"))
    assert store.dead_letters.discard(some("x")).count == 1
    assert store.dead_letters.discard(some("x")).count == 0
    assert store.dead_letters.redrive(some(select_all=True)).count == 1
    assert (state(store, "x"), state(store, "y")) == ("discarded", "redriven")
    refused = store.dead_letters.discard(some("y"))
    assert [one.why for one in refused.skipped] == ["it is redriven already"]
    assert store.dead_letters.redrive(some("x")).count == 1
    with store.reading() as connection:
        pages = {name: dead_letter_page(connection, before=None, limit=9, state=name) for name in ("open", "redriven", "discarded")}
    assert {name: sorted(one.id for one in page.dead_letters) for name, page in pages.items()} == {
        "open": [],
        "redriven": ["x", "y"],
        "discarded": [],
    }


def test_a_discarded_dead_letter_opens_again_only_for_another_trigger(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, lane="a", position=7))
    store.dead_letters.discard(some("x"))
    bury(owner, letter("x", 1, lane="a", position=7))
    assert state(store) == "discarded", "a repetition of what was discarded"
    bury(owner, letter("x", 2, lane="a", position=7))
    found = detail_of(store)
    assert found is not None
    assert (found.state, found.triggers) == ("open", ["first", "second"])
    assert rejected(store) == {1: 1, 2: 1}


def test_filters_select_the_oldest_open_dead_letters_and_count_the_rest(store: Store, owner: Holder) -> None:
    bury(owner, letter("a", 1), letter("b", 2), letter("c", 1, 2), letter("d", 1, kind="missing_field"), letter("e", 2, stream="other"))
    first = store.dead_letters.discard(some(trigger="first", limit=2))
    assert (first.count, first.remaining) == (2, 1)
    assert [state(store, id) for id in "abcde"] == ["discarded", "open", "discarded", "open", "open"]
    assert store.dead_letters.discard(some(kind="missing_field", stream="folder")).count == 1
    assert store.dead_letters.discard(some(trigger="first", stream="other")).count == 0
    assert store.dead_letters.discard(some(stream="other")).count == 1
    assert store.dead_letters.discard(some(trigger="nobody")).count == 0
    assert state(store, "b") == "open"


@pytest.mark.parametrize(
    "asked", [DeadLetterSelection(), DeadLetterSelection(ids=["x"], select_all=True), DeadLetterSelection(ids=["x"], kind="failed")]
)
def test_an_empty_or_ambiguous_selection_is_refused(store: Store, asked: DeadLetterSelection) -> None:
    with pytest.raises(ApiRefused):
        store.dead_letters.redrive(asked)
    with pytest.raises(ApiRefused):
        store.dead_letters.discard(asked)


def test_a_dead_letter_that_cannot_be_redriven_is_skipped_with_a_reason(store: Store, owner: Holder) -> None:
    bury(
        owner,
        letter("repr", kind="unserialisable"),
        letter("alone", stream="trigger:first"),
        letter("long", raw="x" * 64 * 1024 + " […]"),
        letter("nobody", 2),
    )
    store.projects.declare(owner.job_id, "flights", declaration("first"))
    done = store.dead_letters.redrive(some(select_all=True))
    assert done.count == 0
    assert {one.id: one.why for one in done.skipped} == {
        "repr": "what it keeps is not the raw event, but what a trigger made of it",
        "alone": "none of its triggers reads the stream trigger:first any more",
        "long": "its text is too long to have been kept whole",
        "nobody": "none of its triggers reads the stream folder any more",
    }
    assert {state(store, id) for id in ("repr", "alone", "long", "nobody")} == {"open"}


@pytest.mark.parametrize("text", ["x" * 64 * 1024, "€" * 70_000, "x" * 5_000_000])
def test_a_long_text_is_stored_whole_in_its_own_table(store: Store, owner: Holder, text: str) -> None:
    bury(owner, letter("x", 1, 2, raw=text))
    with store.reading() as connection:
        [row] = connection.execute(select(dead_letters.c.raw)).scalars()
        assert len(row) <= 64 * 1024
    found = detail_of(store)
    assert found is not None
    assert found.raw == text
    assert store.dead_letters.redrive(some("x")).count == 1
    assert [item.raw for item in waiting(owner, 1)] == [text]
    settle(owner, "fired", trigger=1)
    settle(owner, "dead_lettered", trigger=2)
    assert store.dead_letters.redrive(some("x")).count == 1
    assert [item.raw for item in waiting(owner, 2)] == [text]
    settle(owner, "fired", trigger=2)
    assert detail_of(store) is None
    assert texts(store) == []


def test_a_redrive_of_large_texts_is_limited_in_bytes(store: Store, owner: Holder) -> None:
    bury(owner, *(letter(str(n), raw=str(n) * 6_000_000, lane="a", position=n) for n in range(5)))
    first = store.dead_letters.redrive(some(select_all=True))
    assert (first.count, first.remaining, first.skipped) == (3, 2, [])
    second = store.dead_letters.redrive(some("3", "4"))
    assert (second.count, second.skipped) == (2, [])


def test_ids_beyond_the_byte_limit_of_a_redrive_are_skipped(store: Store, owner: Holder) -> None:
    bury(owner, *(letter(f"letter-{n}", raw="x" * 9_000_000, lane="a", position=n) for n in range(3)))
    done = store.dead_letters.redrive(some("letter-0", "letter-1", "letter-2"))
    assert done.count == 2
    assert [(one.id, one.why) for one in done.skipped] == [("letter-2", "there is much text before it: redrive it once more")]
    assert store.dead_letters.redrive(some("letter-2")).count == 1


def test_long_texts_are_limited_in_bytes_and_the_oldest_are_pruned(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_texts, "MAX_WHOLE_BYTES", 250_000)
    for n in range(5):
        bury(owner, letter(f"letter-{n}", raw=str(n) * 100_000, lane="a", position=n))
        store.dead_letters.discard(some(f"letter-{n}") if n == 4 else some("none"))
    with store.reading() as connection:
        assert len(connection.execute(select(dead_letter_texts.c.dead_letter_id)).all()) == 5
    assert store.prune(lambda connection: letter_texts.oversized_texts(connection, 0, 500)) == 3
    assert texts(store) == ["letter-3", "letter-4"]
    assert [one.why for one in store.dead_letters.redrive(some("letter-0")).skipped] == ["its text is too long to have been kept whole"]
    found = detail_of(store, "letter-0")
    assert found is not None
    assert found.raw.startswith("000")
    assert store.prune(lambda connection: letter_texts.oversized_texts(connection, 0, 500)) == 0


def test_pruning_a_discarded_dead_letter_deletes_its_text(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", raw="x" * 100_000))
    store.dead_letters.discard(some("x"))
    assert store.prune(lambda connection: discarded_dead_letters(connection, 2**62, 10)) == 1
    assert texts(store) == []


def test_every_action_on_dead_letters_is_recorded(store: Store, owner: Holder) -> None:
    bury(owner, letter("x"))
    store.dead_letters.redrive(some("x"))
    store.dead_letters.discard(DeadLetterSelection(kind="failed", limit=7))
    done = store.dead_letters.actions(limit=10).actions
    assert [(one.who, one.action, one.count, one.selection) for one in done] == [
        ("unnamed", "discard", 0, '{"kind":"failed","limit":7}'),
        ("somebody", "redrive", 1, '{"ids":["x"]}'),
    ]
    assert done[0].at.timestamp() * 1_000_000 == START
    assert len(store.dead_letters.actions(limit=1).actions) == 1


def test_the_audit_is_clean_at_every_step_of_a_redrive(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, lane="a.jsonl", position=1), letter("y", 2, lane="a.jsonl", position=2))
    record(owner, receipt(None, 3, 3, answered(1, dead_lettered=1), answered(2, rejected=1)))
    store.dead_letters.redrive(some("x", "y"))
    assert counts(store) == {"read": 3, "filtered": 2, "spilled": 1, "pending": 1}
    assert counts(store, "second") == {"read": 3, "filtered": 2, "spilled": 1, "pending": 1}
    settle(owner, "dead_lettered", trigger=1)
    settle(owner, "fired", trigger=2)
    assert counts(store) == {"read": 3, "filtered": 2, "dead_lettered": 1, "spilled": 1, "settled": 1}
    assert counts(store, "second") == {"read": 3, "filtered": 2, "fired": 1, "spilled": 1, "settled": 1}
    store.dead_letters.redrive(some("x"))
    settle(owner, "filtered", trigger=1)
    assert counts(store) == {"read": 3, "filtered": 3, "spilled": 2, "settled": 2}
    assert books(store).clean


def test_a_dead_letter_without_a_receipt_can_be_redriven(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, lane="a.jsonl", position=1))
    store.dead_letters.redrive(some("x"))
    record(owner, receipt(None, 3, 3, answered(1, dead_lettered=1)))
    settle(owner)
    assert counts(store) == {"read": 3, "filtered": 2, "dead_lettered": 1}
    assert detail_of(store) is None

"""The contract of copies of dead letters: none is passed over, the cursor only rises, and only the reader of the stream moves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.custody import dead_letter_copies
from headrace.store.custody.dead_letter_copies import copy_counts
from headrace.store.queries.events import dead_letter_detail
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.control.triggers import CleanupTriggers, DeclaredTrigger, DeclareProject
from headrace.wire.custody.copies import RecordCopies, RejectedCopy, UncopiedPage
from support.processes.store import DATABASES, Holder, declaration, holder, letter, opened
from support.sources.custody import bury, receipt, record, settle, some


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def find(owner: Holder, stream: str = "folder") -> UncopiedPage:
    return owner.store.dead_letter_copies.find(owner.job_id, stream)


def ids(owner: Holder, stream: str = "folder") -> list[str]:
    return [one.id for one in find(owner, stream).dead_letters]


def made(page: UncopiedPage, *rejected: RejectedCopy, reader: str = "folder") -> RecordCopies:
    copied = len(page.dead_letters) - len(rejected)
    return RecordCopies(reader=reader, stream=page.stream, after=page.after, through=page.through, copied=copied, rejected=list(rejected))


def copy_all(owner: Holder) -> None:
    owner.store.dead_letter_copies.record(owner.job_id, made(find(owner)))


def not_copied(store: Store, id: str) -> str | None:
    with store.reading() as connection:
        found = dead_letter_detail(connection, id)
    assert found is not None
    return found.not_copied


def counts(store: Store, stream: str = "folder") -> tuple[int, int, int] | None:
    with store.reading() as connection:
        return copy_counts(connection, [stream]).get(stream)


def test_dead_letters_come_in_the_order_of_their_commits_with_their_origin(store: Store, owner: Holder) -> None:
    assert (find(owner).after, find(owner).through, ids(owner)) == (0, 0, [])
    bury(owner, letter("b", 1, 2, lane="a", position=7, raw="the text", attempts=3), letter("a"), letter("other", stream="else"))
    page = find(owner)
    assert [one.id for one in page.dead_letters] == ["b", "a"]
    first = page.dead_letters[0]
    assert (first.triggers, first.lane, first.position, first.raw, first.attempts) == (["first", "second"], "a", 7, "the text", 3)
    assert (page.after, page.through) == (0, page.dead_letters[1].number)


def test_dead_letters_are_counted_before_the_first_copy(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"))
    assert counts(store) is None
    with store.reading() as connection:
        assert copy_counts(connection, ["folder", "else"], ["folder"]) == {"folder": (0, 0, 2)}


def test_the_cursor_moves_once_and_a_repeated_record_changes_nothing(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"))
    page = find(owner)
    store.dead_letter_copies.record(owner.job_id, made(page))
    bury(owner, letter("c"))
    store.dead_letter_copies.record(owner.job_id, made(page))
    assert (ids(owner), counts(store)) == (["c"], (2, 0, 1))


def test_a_record_that_begins_elsewhere_changes_nothing(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"), letter("c"))
    first = find(owner).dead_letters[0].number
    for after, through in ((first, first + 2), (0, 0)):
        body = RecordCopies(reader="folder", stream="folder", after=after, through=through, copied=2)
        store.dead_letter_copies.record(owner.job_id, body)
    assert ids(owner) == ["a", "b", "c"]


def test_a_record_beyond_the_last_dead_letter_passes_none_over(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"))
    body = RecordCopies(reader="folder", stream="folder", after=0, through=1000, copied=1)
    store.dead_letter_copies.record(owner.job_id, body)
    bury(owner, letter("b"))
    assert ids(owner) == ["b"]


def test_a_refused_copy_is_marked_and_passed_over(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"))
    page = find(owner)
    rejected = RejectedCopy(number=page.dead_letters[0].number, reason="too large")
    elsewhere = RejectedCopy(number=page.through + 1, reason="not of this page")
    bury(owner, letter("c"))
    store.dead_letter_copies.record(owner.job_id, made(page, rejected, elsewhere).model_copy(update={"copied": 1}))
    assert (ids(owner), not_copied(store, "a"), not_copied(store, "b"), not_copied(store, "c")) == (["c"], "too large", None, None)
    assert counts(store) == (1, 1, 1)


def test_a_dead_letter_that_is_redriven_before_its_copy_is_copied_only_if_it_fails_again(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"), letter("c"))
    store.dead_letters.redrive(some("a", "b"))
    assert ids(owner) == ["c"]
    copy_all(owner)
    (fails, succeeds) = (item.number for item in owner.store.backlog.page(owner.job_id, 1, after=0, limit=9).items)
    settle(owner, "fired", succeeds)
    settle(owner, "dead_lettered", fails)
    assert [(one.id, one.attempts) for one in find(owner).dead_letters] == [("a", 2)]


def test_a_dead_letter_that_fails_again_after_its_copy_is_copied_again_under_a_new_number(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"))
    page = find(owner)
    rejected = [RejectedCopy(number=one.number, reason="too large") for one in page.dead_letters]
    store.dead_letter_copies.record(owner.job_id, made(page, *rejected))
    store.dead_letters.redrive(some("a"))
    assert find(owner).through == find(owner).after
    bury(owner, letter("a", reason="still broken"))
    (again,) = find(owner).dead_letters
    assert (again.id, again.reason, again.attempts) == ("a", "still broken", 2)
    assert again.number > page.through
    assert (not_copied(store, "a"), not_copied(store, "b")) == (None, "too large")


def test_a_late_refusal_does_not_mark_a_dead_letter_that_was_opened_again(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"))
    page = find(owner)
    store.dead_letters.redrive(some("a"))
    bury(owner, letter("a", reason="still broken"))
    store.dead_letter_copies.record(owner.job_id, made(page, RejectedCopy(number=page.through, reason="too large")))
    assert (not_copied(store, "a"), ids(owner)) == (None, ["a"])


def test_dead_letters_that_were_discarded_or_deleted_before_their_copy_are_passed_over(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"), letter("c"))
    store.dead_letters.discard(some("a"))
    store.dead_letters.redrive(some("c"))
    settle(owner, "fired")
    page = find(owner)
    assert [one.id for one in page.dead_letters] == ["b"]
    copy_all(owner)
    assert find(owner).through == find(owner).after
    bury(owner, letter("c"))
    assert ids(owner) == ["c"], "a deleted dead letter leaves no number that is taken again"


def test_a_page_of_discarded_dead_letters_moves_the_cursor(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(owner, *(letter(str(number)) for number in range(600)))
    store.dead_letters.discard(some(select_all=True))
    pages = 0
    while (page := find(owner)).through > page.after:
        assert not page.dead_letters
        copy_all(owner)
        pages += 1
    assert pages == 2


def test_a_page_is_bounded_in_bytes_and_has_one_large_dead_letter(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_copies, "MAX_PAGE_BYTES", 1000)
    large = "é" * 100_000
    bury(owner, letter("a", raw="x" * 600), letter("b", raw="y" * 600), letter("large", raw=large), letter("c"), letter("d"))
    pages = []
    while (page := find(owner)).through > page.after:
        pages.append([(one.id, len(one.raw or "")) for one in page.dead_letters])
        copy_all(owner)
    assert pages == [[("a", 600)], [("b", 600)], [("large", 100_000)], [("c", 1), ("d", 1)]]


def test_a_dead_letter_whose_text_is_not_stored_in_full_has_none(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", raw="the beginning […]"))
    assert [one.raw for one in find(owner).dead_letters] == [None]


def test_only_the_reader_of_a_stream_finds_and_records_its_copies(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"))
    page = find(owner)
    other = holder(store)
    for call in (lambda: find(other), lambda: store.dead_letter_copies.record(other.job_id, made(page))):
        with pytest.raises(Fenced, match="does not read folder"):
            call()
    body = RecordCopies(reader="folder", stream="else", after=0, through=9, copied=1)
    with pytest.raises(Fenced, match="does not copy the dead letters of else"):
        store.dead_letter_copies.record(owner.job_id, body)
    store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    other.load()
    with pytest.raises(Fenced, match="has ended"):
        store.dead_letter_copies.record(owner.job_id, made(page))
    assert ids(other) == ["a"], "the next reader copies what the former one may have copied"


def test_a_job_that_must_release_its_triggers_records_until_another_job_has_them(store: Store, owner: Holder) -> None:
    bury(owner, letter("a"), letter("b"))
    page = find(owner)
    first = page.dead_letters[0].number
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", changed=True))
    half = made(page).model_copy(update={"through": first, "copied": 1})
    store.dead_letter_copies.record(owner.job_id, half)
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2]))
    other = holder(store)
    assert ids(other) == ["b"]
    with pytest.raises(Fenced):
        store.dead_letter_copies.record(owner.job_id, made(page).model_copy(update={"after": first}))
    assert ids(other) == ["b"]


def shards(*names: str) -> DeclareProject:
    declared = [DeclaredTrigger(name=f"t{number}", classpath="some.Trigger", kwargs={}, stream=name) for number, name in enumerate(names)]
    return DeclareProject(triggers=declared, pipelines=[])


def test_the_first_shard_copies_for_the_streams_of_another_number_of_shards(store: Store) -> None:
    job = holder(store)
    store.projects.declare(job.job_id, "flights", shards("orders"))
    job.load()
    record(job, receipt(None, 5, 5, owed=(1,), stream="orders"))
    bury(job, letter("whole", 1, stream="orders"))
    store.projects.declare(job.job_id, "flights", shards("orders#0-of-2", "orders#1-of-2"))
    store.triggers.cleanup(job.job_id, CleanupTriggers(trigger_ids=[1]))
    job.load()
    bury(job, letter("own", 2, stream="orders#0-of-2"))
    assert ids(job, "orders#1-of-2") == []
    for id, stream in (("own", "orders#0-of-2"), ("whole", "orders")):
        page = find(job, "orders#0-of-2")
        assert ([one.id for one in page.dead_letters], page.stream) == ([id], stream)
        with pytest.raises(Fenced) if stream == "orders" else pytest.raises(Fenced, match="does not copy"):
            store.dead_letter_copies.record(job.job_id, made(page, reader="orders#1-of-2"))
        store.dead_letter_copies.record(job.job_id, made(page, reader="orders#0-of-2"))
    assert ids(job, "orders#0-of-2") == []

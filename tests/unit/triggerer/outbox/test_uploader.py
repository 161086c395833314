"""Events are stored despite failures of the API: transient failures are retried, and a rejection is narrowed down to its cause."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

import pytest

from headrace import retry
from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.triggerer.outbox import uploader as uploading
from headrace.triggerer.outbox.outbox import Item, Outbox, OutboxItem
from headrace.triggerer.outbox.uploader import BatchStore, Uploader
from headrace.triggerer.runner.leases import Leases
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import BatchStored, DeadLetterItem, EventBatch, EventItem


class FlakyApi:
    """Stores in memory, as the real one would: idempotent, and refusing a whole batch for one poison item."""

    def __init__(self, seed: int, trouble: float) -> None:
        self.chance = random.Random(seed)
        self.trouble = trouble
        self.events: dict[str, EventItem] = {}
        self.letters: dict[str, DeadLetterItem] = {}
        self.batches: list[int] = []

    async def store(self, batch: EventBatch) -> BatchStored:
        await asyncio.sleep(0)
        if self.chance.random() < self.trouble:
            raise ApiUnavailable("503")
        if any(item.payload == "poison" for item in batch.events):
            raise ApiRefused("422: poison")
        self.batches.append(len(batch.events) + len(batch.dead_letters))
        statuses = ["duplicate" if item.id in self.events else "stored" for item in batch.events]
        self.events |= {item.id: item for item in batch.events}
        self.letters |= {letter.id: letter for letter in batch.dead_letters}
        if self.chance.random() < self.trouble:
            raise ApiUnavailable("the answer was lost")
        return BatchStored.model_validate({"events": statuses, "dead_letters": ["stored"] * len(batch.dead_letters)})


class Ledger:
    """Remembers what was confirmed, and tells when everything is."""

    def __init__(self, owed: Iterable[int]) -> None:
        self.owed = set(owed)
        self.rejected: set[int] = set()
        self.done = asyncio.Event()

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.owed.remove(seq)  # a second confirmation would be a bug
        if not self.owed:
            self.done.set()

    def mark_rejected(self, seq: int) -> None:
        self.rejected.add(seq)


def item(number: int, payload: str = "{}") -> OutboxItem:
    return OutboxItem(
        EventItem(id=f"e{number}", source="s", type="t", payload=payload, stream="u", lane="l", position=number, firings=[7]), number
    )


def epochs(triggers: Iterable[int]) -> dict[int, int]:
    return dict.fromkeys(triggers, 1)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.Backoff, "next", lambda *_: 0.0)


async def upload(api: BatchStore, pendings: list[OutboxItem]) -> Ledger:
    outbox, ledger = Outbox(), Ledger(range(len(pendings)))
    for pending in pendings:
        outbox.put(pending)
    task = asyncio.create_task(Uploader(api, outbox, ledger, epochs).run())
    try:
        await ledger.done.wait()
    finally:
        task.cancel()
        await asyncio.wait({task})
    return ledger


@pytest.mark.parametrize("seed", range(20))
async def test_all_items_are_stored_and_confirmed_once_despite_any_errors(seed: int) -> None:
    chance = random.Random(seed)
    poison = set(chance.sample(range(300), k=chance.randrange(0, 4)))
    api = FlakyApi(seed, trouble=0.4)
    ledger = await upload(api, [item(number, "poison" if number in poison else "{}") for number in range(300)])
    assert set(api.events) == {f"e{number}" for number in range(300) if number not in poison}, f"seed {seed}"
    assert {letter.position for letter in api.letters.values()} == poison == ledger.rejected, f"seed {seed}"


async def test_the_stream_of_each_stored_dead_letter_is_reported() -> None:
    outbox, ledger, streams = Outbox(), Ledger(range(3)), list[str]()
    for number, payload in enumerate(("{}", "poison", "{}")):
        outbox.put(item(number, payload))
    task = asyncio.create_task(Uploader(FlakyApi(0, trouble=0.0), outbox, ledger, epochs, streams.append).run())
    await ledger.done.wait()
    task.cancel()
    await asyncio.wait({task})
    assert streams == ["u"]


async def test_items_added_during_a_batch_share_the_next_batch() -> None:
    api = FlakyApi(0, trouble=0.0)
    outbox, ledger = Outbox(), Ledger(range(100))
    outbox.put(item(0))
    task = asyncio.create_task(Uploader(api, outbox, ledger, epochs).run())
    while len(outbox):
        await asyncio.sleep(0)
    for number in range(1, 100):
        outbox.put(item(number))
    await ledger.done.wait()
    task.cancel()
    assert api.batches == [1, 99]


async def test_a_fenced_job_stops_uploading() -> None:
    class FencedApi:
        async def store(self, batch: EventBatch) -> BatchStored:
            raise Fenced("another owner")

    outbox, ledger = Outbox(), Ledger([0])
    outbox.put(item(0))
    with pytest.raises(Fenced):
        await Uploader(FencedApi(), outbox, ledger, epochs).run()
    assert ledger.owed == {0}


async def test_a_fenced_item_stays_owed_and_other_items_are_confirmed() -> None:
    class HalfFenced:
        async def store(self, batch: EventBatch) -> BatchStored:
            return BatchStored(events=["fenced" if event.id == "e1" else "stored" for event in batch.events], dead_letters=[])

    outbox, ledger = Outbox(), Ledger([0, 1, 2])
    for number in range(3):
        outbox.put(item(number))
    task = asyncio.create_task(Uploader(HalfFenced(), outbox, ledger, epochs).run())
    while ledger.owed != {1}:
        await asyncio.sleep(0)
    task.cancel()


async def test_fenced_items_are_resent_under_new_leases() -> None:
    leases = Leases()
    sent: list[dict[int, int]] = []

    class Changed:
        async def store(self, batch: EventBatch) -> BatchStored:
            sent.append(batch.epochs)
            status = "stored" if batch.epochs == {7: 2} else "fenced"
            return BatchStored.model_validate({"events": [status] * len(batch.events), "dead_letters": []})

    leases.update({7: 1})
    outbox, ledger = Outbox(), Ledger([0])
    outbox.put(item(0))
    uploader = Uploader(Changed(), outbox, ledger, leases.epochs)
    task = asyncio.create_task(uploader.run())
    while not sent:
        await asyncio.sleep(0)
    leases.update({7: 2})
    uploader.resend_fenced()
    await ledger.done.wait()
    task.cancel()
    assert sent == [{7: 1}, {7: 2}]


async def test_fenced_items_stay_pending_until_no_lease_covers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases()
    fenced = asyncio.Event()

    class Fences:
        async def store(self, batch: EventBatch) -> BatchStored:
            fenced.set()
            return BatchStored.model_validate({"events": ["fenced"] * len(batch.events), "dead_letters": []})

    leases.update({7: 1, 8: 1})
    outbox = Outbox()
    event = EventItem(id="e", source="s", type="t", payload="x" * 5_000, stream="u", lane="l", position=0, firings=[7, 8])
    outbox.put(OutboxItem(event, 0))
    uploader = Uploader(Fences(), outbox, Ledger([0]), leases.epochs)
    task = asyncio.create_task(uploader.run())
    await fenced.wait()
    while not outbox.fenced:
        await asyncio.sleep(0)
    assert (len(outbox), outbox.held_bytes > 5_000) == (0, True)
    assert uploader.pending_triggers([7, 8, 9]) == {7, 8}
    uploader.drop_stale()
    assert uploader.pending_triggers([7]) == {7}, "7 is still held: its new lease may be on the way"
    with monkeypatch.context() as later:
        later.setattr(uploading, "MAX_FENCED_SECONDS", 0.0)
        assert uploader.pending_triggers([7, 8]) == set(), "nobody waits for it for ever"
    leases.update({8: 2}, released=[7])
    leases.drop_released([])
    uploader.drop_stale()
    assert (list(outbox.fenced), outbox.held_bytes, uploader.pending_triggers([7, 8])) == ([], 0, set())
    task.cancel()


async def test_a_trigger_that_polls_alone_waits_for_outbox_capacity() -> None:
    outbox = Outbox(bound=2)
    outbox.put(item(0))
    await outbox.wait_capacity()
    outbox.put(item(1))
    waiting = asyncio.create_task(outbox.wait_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert [pending.seq for pending in await outbox.take(1, 10**6)] == [0]
    await waiting
    assert len(outbox) == 1


async def test_a_batch_is_bounded_in_bytes_too_but_never_empty() -> None:
    outbox = Outbox()
    for number in range(3):
        outbox.put(item(number, "x" * 100))
    assert [pending.seq for pending in await outbox.take(10, 50)] == [0]
    assert [pending.seq for pending in await outbox.take(10, 400)] == [1, 2]


class PickyApi:
    """Stores what it takes; `refuses` gives the error for a batch, or None."""

    def __init__(self, refuses: Callable[[Item], Exception | None], *, broken: int = 0) -> None:
        self.refuses = refuses
        self.broken = broken
        self.calls = 0
        self.stored: list[Item] = []

    async def store(self, batch: EventBatch) -> BatchStored:
        await asyncio.sleep(0)
        self.calls += 1
        if self.broken:
            self.broken -= 1
            raise ApiUnavailable("it failed", status=500)
        items: list[Item] = [*batch.events, *batch.dead_letters, *batch.spills]
        for item in items:
            if (error := self.refuses(item)) is not None:
                raise error
        self.stored += [item for item in items if item not in self.stored]
        counts = {"events": len(batch.events), "dead_letters": len(batch.dead_letters), "spills": len(batch.spills)}
        return BatchStored.model_validate({name: ["stored"] * number for name, number in counts.items()})

    def letters(self) -> list[DeadLetterItem]:
        return [item for item in self.stored if isinstance(item, DeadLetterItem)]


def failing(item: Item) -> Exception | None:
    return ApiUnavailable("it failed", status=500) if getattr(item, "payload", "") == "poison" else None


async def test_an_item_that_fails_the_api_becomes_a_dead_letter_and_other_items_are_stored() -> None:
    api = PickyApi(failing)
    ledger = await upload(api, [item(number, "poison" if number in {7, 40} else "{}") for number in range(60)])
    assert {letter.position for letter in api.letters()} == {7, 40} == ledger.rejected
    assert len([one for one in api.stored if isinstance(one, EventItem)]) == 58


async def test_an_api_that_fails_on_all_items_is_retried_without_dead_letters() -> None:
    api = PickyApi(lambda _: None, broken=100)
    ledger = await upload(api, [item(number) for number in range(60)])
    assert len(api.stored) == 60
    assert not api.letters()
    assert not ledger.rejected


async def test_a_foreign_server_at_the_address_of_the_api_is_retried() -> None:
    answers = [ApiError("It answered, but not as a Headrace api does.")] * 5
    api = PickyApi(lambda _: answers.pop() if answers else None)
    await upload(api, [item(number) for number in range(3)])
    assert len(api.stored) == 3
    assert not api.letters()


async def test_a_refused_dead_letter_is_stored_in_its_short_form() -> None:
    def refuses(item: Item) -> Exception | None:
        return ApiRefused("too large") if isinstance(item, DeadLetterItem) and (len(item.raw) > 1000 or "\0" in item.id) else None

    api = PickyApi(refuses)
    given = {"kind": "failed", "reason": "no", "stream": "u", "lane": "l", "triggers": [7]}
    odd = [
        DeadLetterItem.model_validate(given | {"id": f"a\0{number}", "raw": "x" * 5_000, "position": number, "traceback": ["line"] * 500})
        for number in range(3)
    ]
    await upload(api, [OutboxItem(letter, number) for number, letter in enumerate(odd)])
    assert [letter.position for letter in api.letters()] == [0, 1, 2]
    assert len({letter.id for letter in api.letters()}) == 3


async def test_a_refused_spill_becomes_a_dead_letter_of_its_triggers() -> None:
    api = PickyApi(lambda item: ApiRefused("too large") if isinstance(item, SpillItem) else None)
    spill = SpillItem(stream="u", lane="l", position=3, raw="x" * 100_000, triggers=[7, 8])
    ledger = await upload(api, [OutboxItem(spill, 0)])
    (letter,) = api.letters()
    assert (letter.position, letter.triggers, letter.kind) == (3, [7, 8], "failed")
    assert len(letter.raw) == 100_000
    assert ledger.rejected == {0}


async def test_fenced_items_are_stored_before_later_items() -> None:
    leases = Leases()
    stored: list[str] = []
    fenced = asyncio.Event()

    class Changed:
        async def store(self, batch: EventBatch) -> BatchStored:
            await asyncio.sleep(0)
            status = "stored" if batch.epochs == {7: 2} else "fenced"
            stored.extend(event.id for event in batch.events if status == "stored")
            if status == "fenced":
                fenced.set()
            return BatchStored.model_validate({"events": [status] * len(batch.events), "dead_letters": []})

    leases.update({7: 1})
    outbox, ledger = Outbox(), Ledger(range(6))
    uploader = Uploader(Changed(), outbox, ledger, leases.epochs)
    for number in range(2):
        outbox.put(item(number))
    task = asyncio.create_task(uploader.run())
    await fenced.wait()
    for number in range(2, 6):
        outbox.put(item(number))
    leases.update({7: 2})
    uploader.resend_fenced()
    await ledger.done.wait()
    task.cancel()
    assert stored == [f"e{number}" for number in range(6)]


async def test_a_spill_waits_only_for_fenced_spills_of_its_trigger() -> None:
    leases = Leases()
    leases.update({7: 1, 8: 1})
    stored: list[int | None] = []
    fenced = asyncio.Event()

    class Changed:
        async def store(self, batch: EventBatch) -> BatchStored:
            await asyncio.sleep(0)
            statuses = ["fenced" if 8 in spill.triggers and batch.epochs[8] == 1 else "stored" for spill in batch.spills]
            stored.extend(spill.position for spill, status in zip(batch.spills, statuses, strict=True) if status == "stored")
            fenced.set()
            return BatchStored.model_validate({"events": [], "dead_letters": [], "spills": statuses})

    def spill(number: int, *triggers: int) -> OutboxItem:
        return OutboxItem(SpillItem(stream="u", lane="l", position=number, raw="{}", triggers=list(triggers)), number)

    outbox, ledger = Outbox(), Ledger(range(4))
    uploader = Uploader(Changed(), outbox, ledger, leases.epochs)
    outbox.put(spill(0, 7, 8))
    task = asyncio.create_task(uploader.run())
    await fenced.wait()
    outbox.put(spill(1, 7))
    outbox.put(spill(2, 9))
    while 2 in ledger.owed:
        await asyncio.sleep(0)
    outbox.put(spill(3, 7))
    while len(outbox):
        await asyncio.sleep(0)
    assert stored == [2]
    leases.update({7: 1, 8: 2})
    uploader.resend_fenced()
    await ledger.done.wait()
    task.cancel()
    assert stored == [2, 0, 1, 3]


async def test_fenced_spills_return_to_their_position() -> None:
    outbox = Outbox()
    spill = [OutboxItem(SpillItem(stream="u", lane="l", position=number, raw="{}", triggers=[7]), number) for number in range(4)]
    events = [item(number) for number in range(10, 14)]
    for pending in (*spill, *events):
        outbox.put(pending)
    taken = await outbox.take(4, 10**6)
    outbox.put(item(20))
    outbox.requeue(reversed(taken))
    assert [pending.seq for pending in outbox] == [10, 11, 12, 13, 20, 0, 1, 2, 3]


async def test_events_are_stored_while_spills_are_in_flight() -> None:
    stored = asyncio.Event()

    class SlowWithSpills:
        async def store(self, batch: EventBatch) -> BatchStored:
            assert not (batch.spills and batch.events)
            if batch.spills:
                await stored.wait()
            return BatchStored(events=["stored"] * len(batch.events), dead_letters=[], spills=["stored"] * len(batch.spills))

    outbox, ledger = Outbox(), Ledger(range(2))
    outbox.put(OutboxItem(SpillItem(stream="u", lane="l", position=0, raw="{}", triggers=[7]), 0))
    task = asyncio.create_task(Uploader(SlowWithSpills(), outbox, ledger, epochs).run())
    async with asyncio.timeout(120):
        while len(outbox):
            await asyncio.sleep(0)
        outbox.put(item(1))
        while ledger.owed != {0}:
            await asyncio.sleep(0)
        stored.set()
        await ledger.done.wait()
    task.cancel()


@pytest.mark.parametrize("seed", range(10))
async def test_no_spill_is_durable_before_older_items_despite_api_failures(seed: int) -> None:
    chance = random.Random(seed)
    durable: list[int] = []

    class Slow:
        async def store(self, batch: EventBatch) -> BatchStored:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                raise ApiUnavailable("503")
            for spill in batch.spills:
                older = {number for number in range(spill.position or 0) if number not in durable}
                assert not older, f"seed {seed}"
                durable.append(spill.position or 0)
            durable.extend(event.position or 0 for event in batch.events)
            return BatchStored(events=["stored"] * len(batch.events), dead_letters=[], spills=["stored"] * len(batch.spills))

    outbox, ledger = Outbox(), Ledger(range(200))
    task = asyncio.create_task(Uploader(Slow(), outbox, ledger, epochs).run())
    async with asyncio.timeout(120):
        for number in range(200):
            spill = SpillItem(stream="u", lane="l", position=number, raw="{}", triggers=[7])
            outbox.put(OutboxItem(spill, number) if chance.random() < 0.5 else item(number))
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
        await ledger.done.wait()
    task.cancel()
    assert sorted(durable) == [*range(200)]

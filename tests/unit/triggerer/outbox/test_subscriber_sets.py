"""Subscriber sets are defined once, as differences, in requests of bounded size, and again after the API merged them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from headrace.core.ledger.receipts import Receipt, TriggerAnswers
from headrace.core.ledger.subscriber_sets import digest_of, digest_text, subscriber_set_digest
from headrace.errors import ApiRefused
from headrace.ports.triggerer_api import TriggererApi
from headrace.triggerer.outbox.outbox import Outbox, triggers_of
from headrace.triggerer.outbox.receipt_recorder import MAX_NAMED_TRIGGERS, ApiReceiptRecorder
from headrace.triggerer.outbox.subscriber_sets import SubscriberSets
from headrace.wire.custody.events import ReceiptStatus
from headrace.wire.custody.receipts import MAX_MEMBERS, SubscriberSetDefined, SubscriberSetDefinition
from headrace.wire.custody.receipts import Receipt as WireReceipt
from support.processes.api_twin import ApiTwin


class Api(ApiTwin):
    """Knows subscriber sets; `known` has the members of each by its digest."""

    def __init__(self) -> None:
        self.known: dict[str | None, frozenset[int]] = {None: frozenset()}
        self.calls: list[SubscriberSetDefinition] = []

    async def define_subscriber_set(self, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
        self.calls.append(subscriber_set)
        await asyncio.sleep(0)
        if subscriber_set.base not in self.known:
            return SubscriberSetDefined(defined=False)
        members = (self.known[subscriber_set.base] - set(subscriber_set.departed)) | set(subscriber_set.joined)
        assert digest_of(subscriber_set.digest) == subscriber_set_digest(members)
        self.known[subscriber_set.digest] = members
        return SubscriberSetDefined(defined=True)

    def drop_sets(self) -> None:
        self.known = {None: frozenset()}


def subscriber_sets(api: Api) -> SubscriberSets:
    return SubscriberSets(cast(TriggererApi, api))


def test_the_digest_of_a_difference_equals_the_digest_of_the_set() -> None:
    whole = subscriber_set_digest(range(1_000))
    assert subscriber_set_digest([7, 1_000], [5], subscriber_set_digest(set(range(1_000)) - {7})) == subscriber_set_digest(
        (set(range(1_001))) - {5}
    )
    assert subscriber_set_digest([5], [1_000], subscriber_set_digest(set(range(1_001)) - {5})) == whole
    assert digest_of(digest_text(whole)) == whole
    assert subscriber_set_digest([], [1, 2], subscriber_set_digest([2, 1])) == 0


async def test_a_subscriber_set_is_defined_by_its_difference_from_the_previous_set() -> None:
    api = Api()
    made = subscriber_sets(api)
    many = tuple(range(1, 2 * MAX_MEMBERS + 2))
    first = await made.define("s", many)
    assert api.known[first] == frozenset(many)
    assert [len(call.joined) for call in api.calls] == [MAX_MEMBERS, MAX_MEMBERS, 1]
    assert await made.define("s", many) == await made.define("s", (*many,)) == first
    second = await made.define("s", (*many[1:], 50_000))
    assert await made.define("s", many) == first
    assert [(call.joined, call.departed) for call in api.calls[3:]] == [([50_000], [1])]
    assert api.known[second] == {*many[1:], 50_000}


async def test_concurrent_callers_define_a_set_once() -> None:
    api = Api()
    made = subscriber_sets(api)
    assert len(set(await asyncio.gather(*(made.define("s", (1, 2, 3)) for _ in range(20))))) == 1
    assert len(api.calls) == 1


async def test_the_whole_set_is_defined_if_its_base_is_unknown() -> None:
    api = Api()
    made = subscriber_sets(api)
    await made.define("s", (1, 2))
    api.drop_sets()
    digest = await made.define("s", (1, 2, 3))
    assert api.known[digest] == {1, 2, 3}


class Recorder(ApiReceiptRecorder):
    """A recorder whose receipts are answered by `api`, as the uploader would."""

    def __init__(self, api: Api) -> None:
        super().__init__(cast(TriggererApi, api), Outbox())
        self.api = api
        self.sent: list[WireReceipt] = []

    async def _store(self, receipt: WireReceipt) -> ReceiptStatus:
        self.sent.append(receipt)
        return "stored" if receipt.subscriber_set in self.api.known else "unknown_subscriber_set"


async def test_a_receipt_names_many_triggers_by_their_subscriber_set() -> None:
    recorder = Recorder(Api())
    few, many = tuple(range(MAX_NAMED_TRIGGERS)), tuple(range(MAX_NAMED_TRIGGERS + 1))
    for owed in (few, many):
        await recorder.record(Receipt("s", "x", None, 1, 1, owed, (TriggerAnswers(7, fired=1),)))
    assert [(len(one.owed), one.subscriber_set is None) for one in recorder.sent] == [(MAX_NAMED_TRIGGERS, True), (0, False)]
    assert list(triggers_of(recorder.sent[1])) == [7]


async def test_a_subscriber_set_that_was_merged_is_defined_again() -> None:
    api = Api()
    recorder = Recorder(api)
    receipt = Receipt("s", "x", None, 1, 1, tuple(range(100)), ())
    await recorder.record(receipt)
    api.drop_sets()
    await recorder.record(receipt)
    assert len(recorder.sent) == 3


async def test_repeated_definitions_of_an_unknown_subscriber_set_end() -> None:
    class Forgetful(Api):
        async def define_subscriber_set(self, subscriber_set: SubscriberSetDefinition) -> SubscriberSetDefined:
            return SubscriberSetDefined(defined=True)

    with pytest.raises(ApiRefused, match="does not take the receipt"):
        await Recorder(Forgetful()).record(Receipt("s", "x", None, 1, 1, tuple(range(100)), ()))

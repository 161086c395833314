"""The contract of receipts after a trigger has changed its stream: only the owner of a stream records its answers."""

from __future__ import annotations

from headrace.store import Store
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject
from support.processes.store import Holder, holder
from support.sources.custody import answered, receipt, status


def declare(owner: Holder, **streams: str) -> None:
    triggers = [DeclaredTrigger(name=name, classpath="some.Trigger", kwargs={}, stream=stream) for name, stream in streams.items()]
    owner.store.projects.declare(owner.job_id, "flights", DeclareProject(triggers=triggers, pipelines=[]))
    owner.load()


def test_the_owner_of_a_stream_fences_receipts_of_a_trigger_that_has_left_it(store: Store) -> None:
    before = holder(store)
    declare(before, changed="left")
    declare(before, changed="entered")
    last = receipt(None, 10, 10, answered(1, fired=1), owed=(1,), stream="left")
    assert status(before, last) == ["stored"], "nobody else has the stream: what was answered is true"
    owner = holder(store)
    declare(owner, changed="entered", added="left")
    assert (set(before.epochs), set(owner.epochs)) == ({1}, {2})
    late = receipt(10, 20, 10, owed=(1,), stream="left")
    unanswered = receipt(10, 20, 10, owed=(), stream="left")
    entered = receipt(None, 5, 5, owed=(1,), stream="entered")
    assert status(before, late, unanswered, entered) == ["fenced", "fenced", "stored"]
    assert status(owner, receipt(10, 15, 5, owed=(2,), stream="left")) == ["stored"]

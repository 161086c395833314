"""Messages of a trigger process to its runner contain no secrets: only the trigger process has the fetched secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.values.masking import Masker
from headrace.triggerer import exception_text
from headrace.triggerer.ipc.trigger_messages import Rejected, Step
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.user_process import remote_stream, trigger_executor
from headrace.triggerer.user_process.remote_stream import Delivered, RemoteStream
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import TriggerEvent
from headrace.wire.custody.events import DeadLetterItem
from support.processes.trigger_process import run_alone

SECRET = "correct-horse\nbattery-staple"


class Leaking(BaseTrigger):
    """Raises the secret, or yields an event that cannot be stored and shows it."""

    def __init__(self, event: TriggerEvent | None = None) -> None:
        self._event = event

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "Leaking", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        if self._event is None:
            error = RuntimeError(f"cannot log in with {SECRET}")
            error.add_note(f"the token was {SECRET}")
            raise error from ValueError(SECRET)
        yield self._event


class Shown:
    """A value that is not JSON and prints the secret."""

    def __repr__(self) -> str:
        return f"Shown({SECRET!r})"


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the trigger process's side know the secret: the kit runs both sides in one process."""
    known = Masker()
    known.add([SECRET])
    monkeypatch.setattr(trigger_executor, "mask", known)
    monkeypatch.setattr(exception_text, "mask", known)
    monkeypatch.setattr(remote_stream, "mask", known)


def shows(text: str) -> bool:
    return "horse" in text or "staple" in text


async def test_a_failure_has_no_secret_in_its_message_its_notes_or_its_cause() -> None:
    error = (await run_alone(Leaking(), Outbox())).error
    assert error is not None
    assert str(error) == "cannot log in with ***"
    assert "the token was ***" in "\n".join(error.__notes__)
    assert not shows(f"{error}{error.__notes__}")


async def test_an_event_that_cannot_be_stored_has_no_secret_in_its_dead_letter() -> None:
    outbox = Outbox()
    await run_alone(Leaking(TriggerEvent(Shown())), outbox)
    (letter,) = [pending.item for pending in outbox if isinstance(pending.item, DeadLetterItem)]
    assert "Shown" in letter.model_dump_json()
    assert not shows(letter.model_dump_json())


async def test_a_rejection_has_no_secret_in_its_reason() -> None:
    said: list[Step] = []
    stream = RemoteStream(1, "s", said.append, acks=True)
    stream.deliver(Delivered("raw", "lane", 1))
    await anext(aiter(stream))
    assert stream.reject(f"not with {SECRET}")
    assert said[-1] == Rejected(1, 0, "not with ***")

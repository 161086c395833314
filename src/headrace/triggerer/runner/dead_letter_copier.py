"""Copy the dead letters of streams to their brokers, in the order of their numbers.

Invariant: the cursor of a stream moves only past dead letters whose copies the broker has confirmed or rejected permanently. A process that
ends between the confirmation and the move sends a copy again.

A copier never delays its stream: it has a task and a connection of its own, and the dead letters are durable before it sees them.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from headrace.core.values.message_text import VALUE_MARK, split_metadata
from headrace.core.values.text import describe_error
from headrace.errors import CopyRejected, HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import Backoff, retry_until_available
from headrace.triggerer.task_groups import cancel_all
from headrace.triggers.upstream import Upstream
from headrace.wire.calls.execution import FIND_UNCOPIED, RECORD_COPIES
from headrace.wire.control.streams import CopyReport
from headrace.wire.custody.copies import FindUncopied, RecordCopies, RejectedCopy, UncopiedDeadLetter, UncopiedPage

FIRST_WAIT_SECONDS: Final = 0.5
MAX_WAIT_SECONDS: Final = 30.0
CUT: Final = "Its text is too long to have been kept whole."

MakeSender = Callable[[Upstream], DeadLetterSender]
"""Return the sender for the dead letters of an upstream with a `dead_letter_target`. Raises `HeadraceError`."""


def no_sender(upstream: Upstream) -> DeadLetterSender:
    """Refuse to make a sender, for processes that have none."""
    raise UpstreamError(f"Dead letters of {upstream.stream_key()} cannot be copied here: this process has no senders.")


log = structlog.get_logger(__name__)


class Progress(NamedTuple):
    """What to record of a page, or None if nothing is settled, and the error of the first copy that is not."""

    record: RecordCopies | None
    error: HeadraceError | None


def progress(reader: str, page: UncopiedPage, results: Sequence[HeadraceError | None]) -> Progress:
    """Return what the results of a page allow to record: all copies before the first one that is neither confirmed nor rejected."""
    through, copied = page.after, 0
    rejected: list[RejectedCopy] = []
    error: HeadraceError | None = None
    for dead_letter, result in zip(page.dead_letters, results, strict=True):
        if isinstance(result, CopyRejected):
            rejected.append(RejectedCopy(number=dead_letter.number, reason=str(result)))
        elif result is None:
            copied += 1
        else:
            error = result
            break
        through = dead_letter.number
    else:
        through = page.through
    if through == page.after:
        return Progress(None, error)
    record = RecordCopies(reader=reader, stream=page.stream, after=page.after, through=through, copied=copied, rejected=rejected)
    return Progress(record, error)


class DeadLetterCopier:
    """Copies the dead letters of one stream, from a start until it is cancelled."""

    def __init__(self, api: TriggererApi, stream: str, make: Callable[[], DeadLetterSender]) -> None:
        self._api = api
        self._stream = stream
        self._make = make
        self._sender: DeadLetterSender | None = None
        self._woken = asyncio.Event()
        self._backoff = Backoff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS)
        self._log = log.bind(stream=stream)
        self.error: str | None = None
        """Why the last attempt failed, until one succeeds."""

    def wake(self) -> None:
        """Look for dead letters: one was stored."""
        self._woken.set()

    async def run(self) -> None:
        """Copy what is stored, and then what is stored later."""
        try:
            while True:
                self._woken.clear()
                try:
                    is_done = await self._copy_page()
                except HeadraceError as error:
                    await self._pause(error)
                except Exception as error:  # of a client library: the dead letters stay in the store, and the stream goes on
                    self._log.error("copier failed", exc_info=error)
                    await self._pause(HeadraceError(f"The copies failed: {describe_error(error)}."))
                else:
                    self._clear_error()
                    if is_done:
                        await self._woken.wait()
        finally:
            await self._close()

    async def _copy_page(self) -> bool:
        """Copy one page; return whether it was the last. Raises the error of a copy that must be sent again."""
        page = await retry_until_available(lambda: self._api.request(FIND_UNCOPIED, FindUncopied(reader=self._stream)), "dead letters")
        if page.through == page.after:
            return True
        settled = progress(self._stream, page, await self._send(page.dead_letters))
        record = settled.record
        if record is not None:
            await retry_until_available(lambda: self._api.request(RECORD_COPIES, record), "copies of dead letters")
            for one in record.rejected:
                self._log.error("copy of a dead letter rejected", number=one.number, reason=one.reason)
            self._log.info("dead letters copied", copies=record.copied, rejected=len(record.rejected))
        if settled.error is not None:
            raise settled.error
        return False

    async def _send(self, dead_letters: Sequence[UncopiedDeadLetter]) -> list[HeadraceError | None]:
        """Return the result of each copy. One without its whole text is not sent."""
        copies = [_copy(one) for one in dead_letters]
        sendable = [copy for copy in copies if copy is not None]
        if sendable and self._sender is None:
            self._sender = self._make()
        results = iter(await self._sender.send(sendable) if sendable and self._sender is not None else ())
        return [CopyRejected(CUT) if copy is None else next(results) for copy in copies]

    async def _pause(self, error: HeadraceError) -> None:
        """Wait before the next attempt, which has a new connection, and the credentials of then."""
        if self.error is None:
            self._log.warning("dead letters not copied", reason=str(error), hint=error.hint)
        self.error = str(error)
        await self._close()
        await asyncio.sleep(self._backoff.next())

    def _clear_error(self) -> None:
        self.error = None
        self._backoff.reset()

    async def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.aclose()


class DeadLetterCopiers:
    """The copiers of the streams of a runner."""

    def __init__(self, api: TriggererApi, make: MakeSender = no_sender) -> None:
        self._api = api
        self._make = make
        self._running: dict[str, _Running] = {}

    def start(self, stream: str, upstream: Upstream) -> None:
        """Start the copier of a stream that is opened, if its dead letters are copied. A running one continues."""
        target = upstream.dead_letter_target
        if target is None or stream in self._running:
            return
        copier = DeadLetterCopier(self._api, stream, lambda: self._make(upstream))
        self._running[stream] = _Running(copier, target, asyncio.create_task(copier.run(), name=f"headrace copier {stream}"))

    def wake(self, stream: str) -> None:
        """Copy the dead letter that was stored for a stream."""
        if (running := self._running.get(stream)) is not None:
            running.copier.wake()

    def report(self, stream: str) -> CopyReport | None:
        """Return the state of the copies of a stream, or None if its dead letters are not copied."""
        running = self._running.get(stream)
        return None if running is None else CopyReport(target=running.target, error=running.copier.error)

    async def stop(self, streams: Iterable[str] | None = None) -> None:
        """Stop the copiers of these streams, by default of all. The next reader of a stream continues."""
        names = [*self._running] if streams is None else [name for name in streams if name in self._running]
        await cancel_all([self._running.pop(name).task for name in names])


class _Running(NamedTuple):
    copier: DeadLetterCopier
    target: str
    task: asyncio.Task[None]


def _copy(dead_letter: UncopiedDeadLetter) -> DeadLetterCopy | None:
    """Return the copy of a dead letter, or None if its text is not stored in full."""
    if dead_letter.raw is None:
        return None
    metadata, text = split_metadata(dead_letter.raw)
    if metadata is None:
        return DeadLetterCopy(dead_letter, None, text.removeprefix(VALUE_MARK).encode())
    return DeadLetterCopy(dead_letter, metadata, b64decode(text) if metadata.encoding == "base64" else text.encode())

"""The poll of one upstream: opens it, publishes its raw events, pauses without capacity, and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import structlog

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Subscriber
from headrace.core.values.text import describe_error, describe_text, describe_value
from headrace.errors import HeadraceError, StreamEnded, StreamError, SubscriberOverflow
from headrace.streams.fan_out import FanOut, UnknownLane
from headrace.streams.limits.close_grace import POLL_SHARE, CloseDeadline, is_cancelled
from headrace.streams.limits.flow_control import FlowControl
from headrace.streams.limits.pace import Pace
from headrace.streams.limits.policy import StreamPolicy
from headrace.streams.subscribers.registered import RegisteredSubscribers
from headrace.triggers.upstream import SharedStreamProducer

log = structlog.get_logger(__name__)

POLL_YIELD_INTERVAL: Final = 128
"""Raw events without a pause after which the poll yields to other tasks."""
STALLED_SECONDS: Final = 10.0
"""A subscriber of a stream without acks fails if its queue is full and it has pulled nothing for this time."""


class Poll:
    """One poll of one upstream. `fail` fails a subscriber."""

    def __init__(
        self,
        fan_out: FanOut,
        ledger: Ledger,
        flow_control: FlowControl,
        policy: StreamPolicy,
        *,
        grace: CloseDeadline,
        registered: RegisteredSubscribers | None,
        fail: Callable[[Subscriber, StreamError], None],
        acks: bool,
    ) -> None:
        self._fan_out = fan_out
        self._ledger = ledger
        self._flow_control = flow_control
        self._policy = policy
        self._grace = grace
        self._registered = registered
        self._fail = fail
        self._acks = acks
        self._pace = Pace(ledger, flow_control, policy)
        self.is_over = False
        """Whether the stream has ended: no more raw events are published."""
        self.is_reading = True
        """Whether the poll reads; else it closes the upstream."""

    async def run(self, name: str, producer: SharedStreamProducer) -> None:
        """Read until the stream has ended. Raises the error of the upstream, always as an `Exception` with a printable text."""
        stream = None
        try:
            await self._flow_control.wait()
            stream = producer.open_stream()
            await self._read(name, producer, stream)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise StreamError("The upstream raised CancelledError.") from None
        except BaseException as error:  # an error of a producer ends only its stream, also SystemExit
            raise presentable(error) from None
        finally:
            self.is_reading = False
            await self._close(name, stream)

    async def _read(self, name: str, producer: SharedStreamProducer, stream: AsyncIterator[tuple[Any, Any]]) -> None:
        count = 0
        ledger, publish, flow_control = self._ledger, self._fan_out.publish, self._flow_control
        async for item in stream:
            if self.is_over:
                return
            try:
                raw, payload = item
            except Exception as error:
                raise StreamError(f"The producer yielded {describe_value(item)[:200]}, not (raw_event, broker_payload).") from error
            overflowing = await self._overflow() if ledger.full else None
            try:
                publish(producer, raw, payload)
            except UnknownLane as unknown:
                await self._reject_alone(raw, payload, str(unknown))
            if overflowing:
                self._fail_all(overflowing, name)
            count += 1
            if ledger.full or ledger.outstanding >= flow_control.max_outstanding or ledger.size >= flow_control.allowance:
                if not flow_control.has_capacity():
                    del item, raw, payload  # the wait may be long, and the message large
                    await self._wait_for_capacity(name)
            elif not count % POLL_YIELD_INTERVAL:
                await asyncio.sleep(0)
        raise StreamEnded

    def _fail_all(self, readers: Sequence[Subscriber], name: str) -> None:
        for reader in readers:
            limit = self._policy.max_subscriber_queue
            self._fail(reader, SubscriberOverflow(f"Trigger {reader.trigger_id} fell {limit} raw events behind {name}."))

    async def _reject_alone(self, raw: Any, payload: Any, reason: str) -> None:
        """Publish a raw event with an unknown lane while no other is outstanding: its advance must not commit another one."""
        await self._flow_control.wait_empty(lambda: self.is_over)
        if not self.is_over:
            self._fan_out.reject(raw, payload, reason)
            await self._flow_control.wait_empty(lambda: self.is_over)

    async def _overflow(self) -> Sequence[Subscriber]:
        """Wait shortly for readers with full queues, then spill their entries, or return the readers that must fail."""
        await asyncio.sleep(0)
        if await self._pace.caught_up():
            return ()
        full = tuple(self._ledger.full)
        if self._policy.overflow == "fail":
            return full
        if self._policy.overflow == "spill" and self._registered is not None:
            self._registered.spill([reader for reader in full if reader.registered], stop=False)
        return ()

    async def _wait_for_capacity(self, name: str) -> None:
        if self._acks:  # there the ack timeout fails subscribers that do not answer
            await self._flow_control.wait()
            return
        timeout = min(self._policy.ack_timeout, STALLED_SECONDS)
        while not self._flow_control.has_capacity():
            since = self._policy.clock()
            try:
                async with asyncio.timeout(timeout):
                    await self._flow_control.wait()
            except TimeoutError:
                for reader in [reader for reader in self._ledger.full if reader.begun <= since]:
                    why = f"Trigger {reader.trigger_id} is full and has read nothing of {name} for {timeout:g} seconds"
                    self._fail(reader, SubscriberOverflow(f"{why}: it misses what comes."))

    async def _close(self, name: str, stream: object) -> None:
        close = getattr(stream, "aclose", None)
        if close is None:
            return
        try:
            async with asyncio.timeout(self._grace.left(POLL_SHARE)):
                await close()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            log.warning("Upstream raised CancelledError as it was closed", stream=name)
        except BaseException as error:  # as above
            log.warning("Upstream does not close", stream=name, error=describe_error(error))


def presentable(error: BaseException) -> Exception:
    """Return the error if it is an `Exception` with a printable text, else one with its description.

    The text of an error of Headrace may be long or have a secret, which is cut or masked. Its class and its hint stay.
    """
    described = describe_error(error)
    try:
        if isinstance(error, Exception) and str(error) in described:
            return error
    except BaseException:  # its `str` raises
        log.debug("An error has no text", error=described)
    if isinstance(error, HeadraceError) and type(error).__module__ == HeadraceError.__module__:
        return type(error)(describe_text(error), hint=error.hint)
    return StreamError(f"The upstream raised {described}")

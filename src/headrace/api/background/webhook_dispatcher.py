"""The webhook dispatcher: delivers stored events in causal order, with limited concurrency for each webhook.

Invariants: the store's commits wake it, and nothing is polled. An event is settled after its webhook accepted it.
If an API server ends during a delivery, the event is sent again. A failed event blocks only its followers. Any
number of API servers may dispatch, because claims are exclusive.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from time import monotonic_ns
from typing import Any, Final

from headrace.api.background.webhook_sender import DeliveryResponse, Sender
from headrace.core.ordering.delivery import Claim, trees, waits_for
from headrace.errors import ResourceError
from headrace.store import Store
from headrace.store.ordering.log_feed import expire
from headrace.store.webhooks import Attempt, Hook
from headrace.streams.limits.close_grace import is_cancelled

CLAIM: Final = 32
MAX_CONCURRENT_DELIVERIES: Final = 8
LOOK_AGAIN: Final = 1.0
"""Seconds between two reads of the list of webhooks while there is work. The same read finds events that are due by time alone."""

WORK: Final = "the list of webhooks"


def _work_of(hook: Hook) -> str:
    return f"webhook {hook.name}"


class WebhookDispatcher:
    """Deliver events to the webhooks of one store."""

    def __init__(self, store: Store, *, private: bool = False) -> None:
        self._store = store
        self._private = private
        self._woken: dict[int, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._random = random.Random()  # noqa: S311  it only spreads retries

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Dispatch as long as the body runs."""
        loop = asyncio.get_running_loop()

        def committed() -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._wake)

        unobserve = self._store.observe(committed)
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            unobserve()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def refresh(self) -> None:
        """Read the list of webhooks again."""
        self._changed.set()

    def _wake(self) -> None:
        for woken in self._woken.values():
            woken.set()

    async def _run(self) -> None:
        tasks: dict[int, tuple[Hook, asyncio.Task[None]]] = {}
        async with Sender(private=self._private) as sender:
            try:
                while True:
                    await self._keep_up(sender, tasks)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_AGAIN):
                            await self._changed.wait()
                    self._changed.clear()
            finally:
                for _, task in tasks.values():
                    task.cancel()
                await asyncio.gather(*(task for _, task in tasks.values()), return_exceptions=True)

    async def _keep_up(self, sender: Sender, tasks: dict[int, tuple[Hook, asyncio.Task[None]]]) -> None:
        """Maintain one task for each active webhook with its current settings."""
        try:
            active = {hook.id: hook for hook in await asyncio.to_thread(self._store.webhooks.active)}
        except Exception as error:
            await asyncio.sleep(self._store.background.record_failure(WORK, error))
            return
        self._store.background.record_success(WORK)
        for id, (hook, task) in list(tasks.items()):
            if active.get(id) != hook or task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self._store.background.record_success(_work_of(hook))
                del tasks[id], self._woken[id]
        for id, hook in active.items():
            if id not in tasks:
                self._woken[id] = asyncio.Event()
                tasks[id] = (hook, asyncio.create_task(self._serve(hook, sender, self._woken[id])))

    async def _serve(self, hook: Hook, sender: Sender, woken: asyncio.Event) -> None:
        while True:
            woken.clear()
            try:
                busy = await self._round(hook, sender)
            except Exception as error:
                if not isinstance(error, ResourceError) and not await asyncio.to_thread(self._store.webhooks.exists, hook):
                    return  # the webhook was removed during the round
                pause = self._store.background.record_failure(_work_of(hook), error)
                if is_cancelled():
                    raise asyncio.CancelledError from error  # the error was raised in place of the cancellation
                await asyncio.sleep(pause)
                continue
            self._store.background.record_success(_work_of(hook))
            if not busy:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN):
                        await woken.wait()

    async def _round(self, hook: Hook, sender: Sender) -> bool:
        """Read, claim and send once; return whether there was work."""
        taking = asyncio.create_task(asyncio.to_thread(self._take, hook))
        try:
            fed, claims, bodies = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._settle, hook, [], [], (await taking)[1], [])  # otherwise the claim stays until its lease expires
            raise
        if claims:
            room = asyncio.Semaphore(MAX_CONCURRENT_DELIVERIES)
            async with asyncio.TaskGroup() as group:
                for tree in trees(claims):
                    group.create_task(self._send_tree(hook, sender, tree, bodies, room))
        return fed or bool(claims)

    def _take(self, hook: Hook) -> tuple[bool, list[Claim], dict[int, Any]]:
        progress = self._store.webhooks.feed(hook)
        now = self._store.now()
        due = hook.home.next_due(now)
        if due is None or due > now:
            return progress.moved, [], {}
        expire(hook.home, progress, now)
        claims = hook.home.claim(CLAIM, now)
        return progress.moved, claims, self._store.webhooks.bodies(hook, claims) if claims else {}

    async def _send_tree(self, hook: Hook, sender: Sender, tree: list[Claim], bodies: dict[int, Any], room: asyncio.Semaphore) -> None:
        """Send the events of one tree one after the other. Followers of a failed one are released."""
        done: list[Claim] = []
        attempts: list[Attempt] = []
        stopped: set[bytes] = set()
        failed: list[tuple[Claim, str, int | None]] = []
        held: list[Claim] = []
        try:
            for claim in tree:
                if waits_for(claim, stopped):
                    stopped.add(claim.event.key)
                    held.append(claim)
                    continue
                body = bodies.get(claim.seq)
                if body is None:  # pruned, or not for this webhook
                    done.append(claim)
                    continue
                async with room:
                    attempt, again = await self._send(hook, sender, claim, body)
                attempts.append(attempt)
                if attempt.outcome == "delivered":
                    done.append(claim)
                else:
                    stopped.add(claim.event.key)
                    failed.append((claim, attempt.error or "", again))
        finally:
            finished = {claim.seq for claim in done} | {claim.seq for claim, *_ in failed}
            left = [claim for claim in tree if claim.seq not in finished]
            await asyncio.to_thread(self._settle, hook, done, failed, left, attempts)

    async def _send(self, hook: Hook, sender: Sender, claim: Claim, body: Any) -> tuple[Attempt, int | None]:
        now, began = self._store.now(), monotonic_ns()
        try:
            answer = await sender.send(hook.url, hook.secret, body, claim.mark, now, hook.timeout)
        except Exception as error:
            answer = DeliveryResponse(None, f"it cannot be sent: {type(error).__name__}: {error}")
        took = (monotonic_ns() - began) // 1000
        if answer.taken:
            return Attempt(claim.seq, claim.attempts, "delivered", answer.status, None, took), None
        at_least = int(answer.retry_after * 1_000_000)
        again = hook.home.policy.retry_at(claim.attempts, self._store.now(), self._random.random(), at_least)
        outcome = "dead" if again is None else "failed"
        return Attempt(claim.seq, claim.attempts, outcome, answer.status, answer.error, took), again

    def _settle(
        self, hook: Hook, done: list[Claim], failed: list[tuple[Claim, str, int | None]], left: list[Claim], attempts: list[Attempt]
    ) -> None:
        now = self._store.now()
        hook.home.give_back(left, now)
        hook.home.settle(done, now)
        for claim, error, again in failed:
            hook.home.fail(claim, now, error, again)
        self._store.webhooks.note(hook, attempts)

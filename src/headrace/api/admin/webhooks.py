"""Admin routes of webhooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.wire import webhooks as wire
from headrace.wire.calls import admin as calls
from headrace.wire.secrets import NAME

Name = Annotated[str, Path(pattern=NAME)]

router = APIRouter(tags=["webhooks"])


async def changed(request: Request) -> AsyncGenerator[None]:
    """Refresh the dispatcher once the change is stored."""
    yield
    request.app.state.dispatcher.refresh()


@route(router, calls.LIST_WEBHOOKS)
def webhooks(store: StoreOf) -> wire.WebhookList:
    """Return the webhooks, by name."""
    return wire.WebhookList(webhooks=store.webhooks.summaries())


@route(router, calls.SET_WEBHOOK, dependencies=[Depends(changed)])
def set_webhook(name: Name, settings: wire.SetWebhook, store: StoreOf) -> None:
    """Create or replace a webhook."""
    store.webhooks.set(name, settings)


@route(router, calls.SET_WEBHOOK_STATE, dependencies=[Depends(changed)])
def set_webhook_state(name: Name, body: wire.SetWebhookState, store: StoreOf) -> None:
    """Pause or resume a webhook. It resumes where it stopped."""
    if not store.webhooks.set_state(name, body.state):
        raise _missing(name)


@route(router, calls.REMOVE_WEBHOOK, dependencies=[Depends(changed)])
def remove_webhook(name: Name, store: StoreOf) -> None:
    """Delete a webhook and its pending deliveries."""
    if not store.webhooks.remove(name):
        raise _missing(name)


@route(router, calls.REDRIVE_WEBHOOK)
def redrive(name: Name, store: StoreOf) -> wire.RedriveResult:
    """Redrive the dead events of a webhook."""
    count = store.webhooks.redrive(name)
    if count is None:
        raise _missing(name)
    return wire.RedriveResult(count=count)


@route(router, calls.LIST_DELIVERIES)
def deliveries(name: Name, store: StoreOf, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> wire.DeliveryList:
    """Return the last deliveries of a webhook, the newest first."""
    if not store.webhooks.summaries(name):
        raise _missing(name)
    return wire.DeliveryList(deliveries=store.webhooks.deliveries(name, limit))


def _missing(name: str) -> Refusal:
    return Refusal(404, "not-found", f"There is no webhook '{name}'.", hint="See what there is with: headrace webhooks list")

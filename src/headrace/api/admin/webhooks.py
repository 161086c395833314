"""Webhooks for people: who is told of which events, and how that went."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from headrace.api.auth.authentication import admin
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.wire import webhooks as wire
from headrace.wire.secrets import NAME

Name = Annotated[str, Path(pattern=NAME)]

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"])


async def changed(request: Request) -> AsyncGenerator[None]:
    """Refresh the dispatcher once the change is stored."""
    yield
    request.app.state.dispatcher.refresh()


@router.get("")
def webhooks(store: StoreOf) -> wire.ShownWebhooks:
    """Return the webhooks, by name."""
    return wire.ShownWebhooks(webhooks=store.webhooks.shown())


@router.put("/{name}", status_code=204, dependencies=[Depends(admin), Depends(changed)])
def set_webhook(name: Name, given: wire.SetWebhook, store: StoreOf) -> None:
    """Keep a webhook, in place of what had its name."""
    store.webhooks.set(name, given)


@router.post("/{name}/state", status_code=204, dependencies=[Depends(admin), Depends(changed)])
def want_webhook(name: Name, asked: wire.WantWebhook, store: StoreOf) -> None:
    """Pause a webhook, or resume it where it stopped."""
    if not store.webhooks.want(name, asked.state):
        raise _missing(name)


@router.delete("/{name}", status_code=204, dependencies=[Depends(admin), Depends(changed)])
def remove_webhook(name: Name, store: StoreOf) -> None:
    """Delete a webhook and its pending deliveries."""
    if not store.webhooks.remove(name):
        raise _missing(name)


@router.post("/{name}/redrive", dependencies=[Depends(admin)])
def redrive(name: Name, store: StoreOf) -> wire.WebhookRedriven:
    """Try dead events of a webhook again."""
    count = store.webhooks.redrive(name)
    if count is None:
        raise _missing(name)
    return wire.WebhookRedriven(count=count)


@router.get("/{name}/deliveries")
def deliveries(name: Name, store: StoreOf, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> wire.Deliveries:
    """Return the last attempts, the newest first."""
    if not store.webhooks.shown(name):
        raise _missing(name)
    return wire.Deliveries(deliveries=store.webhooks.deliveries(name, limit))


def _missing(name: str) -> Refusal:
    return Refusal(404, "not-found", f"There is no webhook '{name}'.", hint="See what there is with: headrace webhooks list")

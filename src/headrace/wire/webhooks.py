"""Webhooks: who is told of which events, over HTTP, in causal order."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headrace.wire.base import Timestamp, WireModel
from headrace.wire.secrets import Name

LONGEST_URL = 2_000
WebhookState = Literal["active", "paused"]
DeliveryOutcome = Literal["delivered", "failed", "dead"]


class SetWebhook(WireModel):
    """PUT /api/v1/webhooks/{name}: a new webhook reads the log from its end, or from its beginning."""

    url: str = Field(pattern=r"^https?://[^\s]+$", max_length=LONGEST_URL)
    types: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=["*"], min_length=1, max_length=50)
    secret: str = Field(min_length=16, max_length=500, repr=False)
    policy: Literal["hold", "release"] = "hold"
    max_attempts: int = Field(default=8, ge=1, le=100)
    timeout: float = Field(default=10.0, gt=0, le=120)
    from_beginning: bool = False


class ShownWebhook(WireModel):
    """A webhook as people see it; its secret is never shown."""

    name: str
    url: str
    types: list[str]
    state: WebhookState
    policy: str
    max_attempts: int
    timeout: float
    delivered: int
    failed: int
    dead: int
    waiting: int
    lag: int
    changed: Timestamp


class ShownWebhooks(WireModel):
    """GET /api/v1/webhooks."""

    webhooks: list[ShownWebhook]


class WantWebhook(WireModel):
    """POST /api/v1/webhooks/{name}/state."""

    state: WebhookState


class Delivery(WireModel):
    """One attempt."""

    id: int
    seq: int
    attempt: int
    outcome: DeliveryOutcome
    status: int | None
    error: str | None
    at: Timestamp
    seconds: float


class Deliveries(WireModel):
    """GET /api/v1/webhooks/{name}/deliveries, the newest first."""

    deliveries: list[Delivery]


class WebhookRedriven(WireModel):
    """POST /api/v1/webhooks/{name}/redrive: so many dead events are tried again."""

    count: int


__all__ = ["Deliveries", "Delivery", "Name", "SetWebhook", "ShownWebhook", "ShownWebhooks", "WantWebhook", "WebhookRedriven"]

"""Webhooks: receivers of events over HTTP, in causal order."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from headrace.core.signatures.standard_webhooks import key_of
from headrace.wire.base import Timestamp, WireModel
from headrace.wire.match_pattern import MatchPattern

MAX_URL_CHARS = 2_000
WebhookState = Literal["active", "paused"]
DeliveryOutcome = Literal["delivered", "failed", "dead"]


class SetWebhook(WireModel):
    """PUT /api/v1/webhooks/{name}: a new webhook reads the log from its end, or from its beginning.

    It receives events whose type matches one of the globs `types`, and whose payload matches the event pattern `match`.
    `secret` is one of Standard Webhooks: `whsec_` and the base64 of 24 to 64 bytes.
    """

    url: str = Field(pattern=r"^https?://[^\s]+$", max_length=MAX_URL_CHARS)
    types: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=["*"], min_length=1, max_length=50)
    match: MatchPattern | None = None
    secret: str = Field(max_length=500, repr=False)
    policy: Literal["hold", "release"] = "hold"
    max_attempts: int = Field(default=8, ge=1, le=100)
    timeout: float = Field(default=10.0, gt=0, le=120)
    from_beginning: bool = False

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: str) -> str:
        key_of(value)
        return value


class WebhookSummary(WireModel):
    """A webhook without its secret."""

    name: str
    url: str
    types: list[str]
    match: dict[str, Any] | None
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


class WebhookList(WireModel):
    """GET /api/v1/webhooks."""

    webhooks: list[WebhookSummary]


class SetWebhookState(WireModel):
    """POST /api/v1/webhooks/{name}/state."""

    state: WebhookState


class Delivery(WireModel):
    """One attempt of a delivery."""

    id: int
    seq: int
    attempt: int
    outcome: DeliveryOutcome
    status: int | None
    error: str | None
    at: Timestamp
    seconds: float


class DeliveryList(WireModel):
    """GET /api/v1/webhooks/{name}/deliveries, the newest first."""

    deliveries: list[Delivery]


class RedriveResult(WireModel):
    """POST /api/v1/webhooks/{name}/redrive: the number of dead events that are sent again."""

    count: int

"""Requests of the command line for webhooks. All but reads need a key or an admin's token."""

from __future__ import annotations

from headrace.client.admin.secrets import SecretsClient
from headrace.wire.calls import admin as calls
from headrace.wire.webhooks import DeliveryList, RedriveResult, SetWebhook, SetWebhookState, WebhookList, WebhookState


class WebhooksClient(SecretsClient):
    """Request webhooks from the admin API. `key` is the deployment key, or a token of scope `admin`."""

    def webhooks(self) -> WebhookList:
        """Return the webhooks."""
        return self.request(calls.LIST_WEBHOOKS, None)

    def set_webhook(self, name: str, settings: SetWebhook, *, key: str) -> None:
        """Store a webhook; replace one with the same name."""
        self.request(calls.SET_WEBHOOK, settings, credential=key, name=name)

    def set_webhook_state(self, name: str, state: WebhookState, *, key: str) -> None:
        """Pause or resume a webhook."""
        self.request(calls.SET_WEBHOOK_STATE, SetWebhookState(state=state), credential=key, name=name)

    def remove_webhook(self, name: str, *, key: str) -> None:
        """Delete a webhook."""
        self.request(calls.REMOVE_WEBHOOK, None, credential=key, name=name)

    def redrive_webhook(self, name: str, *, key: str) -> RedriveResult:
        """Redrive dead events."""
        return self.request(calls.REDRIVE_WEBHOOK, None, credential=key, name=name)

    def deliveries(self, name: str, limit: int) -> DeliveryList:
        """Return the last attempts."""
        return self.request(calls.LIST_DELIVERIES, None, query={"limit": limit}, name=name)

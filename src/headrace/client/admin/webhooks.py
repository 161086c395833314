"""Webhooks, as the command line asks for them; all but looking needs a key or an admin's token."""

from __future__ import annotations

from urllib.parse import quote

from headrace.client.admin.secrets import SecretsClient
from headrace.client.http.responses import translate_decode_errors
from headrace.wire.webhooks import Deliveries, SetWebhook, ShownWebhooks, WantWebhook, WebhookRedriven, WebhookState


class WebhooksClient(SecretsClient):
    """Asks the admin API of webhooks. `key` is the deployment key, or a token of scope `admin`."""

    def webhooks(self) -> ShownWebhooks:
        """Return the webhooks."""
        return ShownWebhooks.model_validate(self._get("/api/v1/webhooks"))

    def set_webhook(self, name: str, given: SetWebhook, *, key: str) -> None:
        """Keep a webhook, in place of what had its name."""
        self._send("PUT", _path(name), given, key)

    def want_webhook(self, name: str, state: WebhookState, *, key: str) -> None:
        """Pause a webhook, or let it go on."""
        self._send("POST", f"{_path(name)}/state", WantWebhook(state=state), key)

    def remove_webhook(self, name: str, *, key: str) -> None:
        """Forget a webhook."""
        self._send("DELETE", _path(name), None, key)

    def redrive_webhook(self, name: str, *, key: str) -> WebhookRedriven:
        """Try what is dead again."""
        content = self._send("POST", f"{_path(name)}/redrive", None, key)
        with translate_decode_errors(self._url):
            return WebhookRedriven.model_validate_json(content)

    def deliveries(self, name: str, limit: int) -> Deliveries:
        """Return the last attempts."""
        return Deliveries.model_validate(self._get(f"{_path(name)}/deliveries", limit=limit))


def _path(name: str) -> str:
    return f"/api/v1/webhooks/{quote(name, safe='')}"

"""Credentials of the command line: optional to read, a deployment key or an admin token to change something."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import Settings


def for_looking(settings: Settings) -> str | None:
    """Return the token or key that is set, or None. An API server that other machines can reach requires one."""
    return settings.token or settings.key or None


def for_changing(settings: Settings) -> str:
    """Return the token or key that is set, or the key in `home`. Raises `UsageError` if there is none."""
    if settings.token:
        return settings.token
    return deployment_key(settings)


def deployment_key(settings: Settings) -> str:
    """Return the deployment key that is set, or the one in `home`. Raises `UsageError` if there is none."""
    if not settings.key and not (settings.home / "key").is_file():
        raise UsageError(
            "This needs the deployment key of the API server.",
            hint="Set HEADRACE_KEY (or HEADRACE_TOKEN to an admin's token), or name the --home of the API server.",
        )
    return settings.with_key().key


def admin_client(settings: Settings) -> AdminClient:
    """Return a client of the admin API with the token or key that is set."""
    return AdminClient(settings.url, token=for_looking(settings))

"""What the command line shows the api: nothing for looking, unless it is set; a key or an admin's token for changing."""

from __future__ import annotations

from headrace.client.admin.client import AdminClient
from headrace.errors import UsageError
from headrace.settings import Settings, read_settings


def for_looking(settings: Settings) -> str | None:
    """Return the token or key that is set, for an api that shows nothing without one."""
    return settings.token or settings.key or None


def for_changing(settings: Settings) -> str:
    """Return the token or key that is set, or the key that `home` keeps; none is made here. Raises `UsageError` where there is none."""
    if settings.token:
        return settings.token
    return deployment_key(settings)


def deployment_key(settings: Settings) -> str:
    """Return the deployment key that is set, or the one that `home` keeps. Raises `UsageError` where there is none."""
    if not settings.key and not (settings.home / "key").is_file():
        raise UsageError(
            "This needs the deployment key of the api.",
            hint="Set HEADRACE_KEY (or HEADRACE_TOKEN to an admin's token), or name the api's --home.",
        )
    return settings.with_key().key


def admin_client(api_url: str | None) -> AdminClient:
    """Return a client of the admin API that shows the token or key that is set."""
    settings = read_settings(api_url=api_url)
    return AdminClient(settings.url, token=for_looking(settings))

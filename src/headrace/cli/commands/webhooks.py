"""`headrace webhooks`: who is told of which events over HTTP, in causal order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.options import ApiUrl, AsJson, Home, Limit
from headrace.cli.rendering import ago, show, show_json
from headrace.cli.secret_input import secret_text
from headrace.client.admin.client import AdminClient
from headrace.client.admin.webhooks import WebhooksClient
from headrace.errors import UsageError
from headrace.settings import Settings, read_settings
from headrace.wire.status.status import EventPage
from headrace.wire.webhooks import SetWebhook, WebhookState

ADD = """Examples:

[bold]headrace webhooks add billing https://billing.example/events --type 'order.*'[/bold]   (asks for the secret)

[bold]pass show billing | headrace webhooks add billing https://billing.example/events --from-beginning --release[/bold]"""
Called = Annotated[str, typer.Argument(help="Its name: letters, digits, '.', '-' and '_'.", metavar="NAME", show_default=False)]
Url = Annotated[str, typer.Argument(help="Where events are posted.", metavar="URL", show_default=False)]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="A glob of event types; may be given again. [default: *]", show_default=False)
]
Secret = Annotated[
    str | None, typer.Option("--secret", help="What deliveries are signed with; better typed or piped in.", show_default=False)
]
Release = Annotated[bool, typer.Option("--release", help="Once an event is given up on, go on with what follows it.")]
Attempts = Annotated[int, typer.Option("--max-attempts", min=1, max=100, help="How often an event is tried.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds for one attempt.", metavar="SECONDS")]
Beginning = Annotated[bool, typer.Option("--from-beginning", help="Send a new webhook all events of the log, not only later ones.")]

LOOKED_AT = 1_000
MOST_TYPES = 10

group = typer.Typer(no_args_is_help=True, help="Send events over HTTP: signed, in causal order, with retries.")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(
        group,
        name="webhooks",
        rich_help_panel="Events in and out",
        epilog="Example: [bold]headrace webhooks add billing https://billing.example/events[/bold]",
    )


@group.command("list", epilog="Example: [bold]headrace webhooks list --json | jq .webhooks[].lag[/bold]")
def list_webhooks(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the webhooks and their numbers of pending events."""
    settings = read_settings(api_url=api_url)
    with WebhooksClient(settings.url, token=for_looking(settings)) as client:
        found = client.webhooks()
    if json:
        show_json(found)
        return
    show(
        ["name", "~url", "~types", "state", "#delivered", "#failed", "#dead", "#open", "#lag"],
        [
            (one.name, one.url, " ".join(one.types), one.state, one.delivered, one.failed, one.dead, one.waiting, one.lag)
            for one in found.webhooks
        ],
        empty="There is no webhook yet: make one with `headrace webhooks add NAME URL`.",
    )


@group.command("add", epilog=ADD)
def add_webhook(
    name: Called,
    url: Url,
    types: Types = None,
    secret: Secret = None,
    release: Release = False,
    max_attempts: Attempts = 8,
    timeout: Timeout = 10.0,
    from_beginning: Beginning = False,
    api_url: ApiUrl = None,
    home: Home = None,
) -> None:
    """Keep a webhook, in place of what had its name."""
    settings = read_settings(api_url=api_url, home=home)
    credential = for_changing(settings)
    try:
        given = SetWebhook(
            url=url,
            types=types or ["*"],
            secret=secret_text(secret, "Secret"),
            policy="release" if release else "hold",
            max_attempts=max_attempts,
            timeout=timeout,
            from_beginning=from_beginning,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]  # never the value: it may be the secret
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: {first['msg']}.", hint="See `headrace webhooks add --help`.") from None
    with WebhooksClient(settings.url) as client:
        client.set_webhook(name, given, key=credential)
    out.print(f"[bold green]✓[/] webhook {escape(name)} receives later events.")
    _warn_of_types(settings, given.types, credential)


def _warn_of_types(settings: Settings, types: Sequence[str], credential: str) -> None:
    """Say so where no event that came lately has a type that fits, which may be a slip of the pen."""
    with AdminClient(settings.url, token=credential) as client:
        events = EventPage.model_validate(client.events(limit=LOOKED_AT)).events
    known = Counter(event.type for event in events)
    if not known or any(fnmatchcase(type, pattern) for type in known for pattern in types):
        return
    there = ", ".join(type for type, _ in known.most_common(MOST_TYPES))
    out.print(f"Note: none of the newest {len(events):,} events has a type that fits {' or '.join(types)}.", markup=False)
    out.print(f"Their types are: {there}. A watch gives its events one with type=.", markup=False)


@group.command("pause", epilog="Example: [bold]headrace webhooks pause billing[/bold]")
def pause_webhook(name: Called, api_url: ApiUrl = None, home: Home = None) -> None:
    """Pause a webhook. It continues where it stopped once it is resumed."""
    _want(name, "paused", api_url, home)


@group.command("resume", epilog="Example: [bold]headrace webhooks resume billing[/bold]")
def resume_webhook(name: Called, api_url: ApiUrl = None, home: Home = None) -> None:
    """Resume a webhook."""
    _want(name, "active", api_url, home)


@group.command("remove", epilog="Example: [bold]headrace webhooks remove billing[/bold]")
def remove_webhook(name: Called, api_url: ApiUrl = None, home: Home = None) -> None:
    """Remove a webhook and its pending deliveries."""
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        client.remove_webhook(name, key=for_changing(settings))
    out.print(f"Webhook {escape(name)} is deleted.")


@group.command("redrive", epilog="Example: [bold]headrace webhooks redrive billing[/bold]")
def redrive_webhook(name: Called, api_url: ApiUrl = None, home: Home = None) -> None:
    """Try again all that it was given up on."""
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        count = client.redrive_webhook(name, key=for_changing(settings)).count
    out.print(f"{count:,} events are tried again.")


@group.command("deliveries", epilog="Example: [bold]headrace webhooks deliveries billing -n 20[/bold]")
def list_deliveries(name: Called, limit: Limit = 50, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the last attempts, the newest first."""
    settings = read_settings(api_url=api_url)
    with WebhooksClient(settings.url, token=for_looking(settings)) as client:
        found = client.deliveries(name, limit)
    if json:
        show_json(found)
        return
    show(
        ["#seq", "#attempt", "outcome", "status", "when", "took", "!error"],
        [
            (one.seq, one.attempt, one.outcome, str(one.status or "-"), ago(one.at), f"{one.seconds:.3f} s", one.error or "")
            for one in found.deliveries
        ],
        empty="No delivery yet.",
    )


def _want(name: str, state: WebhookState, api_url: str | None, home: Home) -> None:
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        client.want_webhook(name, state, key=for_changing(settings))
    out.print(f"Webhook {escape(name)} is {state}.")

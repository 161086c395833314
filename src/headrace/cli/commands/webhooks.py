"""`headrace webhooks`: addresses that receive events over HTTP, in causal order."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.credentials import for_changing, for_looking
from headrace.cli.groups import command_group, examples
from headrace.cli.json_arguments import read_match
from headrace.cli.options import ApiUrl, AsJson, Home, Limit, Match
from headrace.cli.rendering import Columns, ago, count, long, number, problem, render
from headrace.cli.secret_input import secret_text
from headrace.client.admin.client import AdminClient
from headrace.client.admin.webhooks import WebhooksClient
from headrace.core.matching.payloads import pattern_text
from headrace.core.signatures.standard_webhooks import secret_of
from headrace.errors import UsageError
from headrace.settings import read_settings
from headrace.wire.calls import admin as calls
from headrace.wire.webhooks import SetWebhook, WebhookState, WebhookSummary

ADD: Final = examples(
    ("headrace webhooks add billing https://billing.example/events --type 'order.*'", "prompts for the secret"),
    """headrace webhooks add paid https://billing.example/paid --match '{"status": ["paid"]}'""",
    "pass show billing | headrace webhooks add billing https://billing.example/events --from-beginning --release",
)
Name = Annotated[str, typer.Argument(help="Its name: letters, digits, '.', '-' and '_'.", metavar="NAME", show_default=False)]
Url = Annotated[str, typer.Argument(help="Address to which events are posted.", metavar="URL", show_default=False)]
Types = Annotated[list[str] | None, typer.Option("--type", help="Glob of event types. Can be repeated. \\[default: *]", show_default=False)]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret", help="Secret that signs deliveries (whsec_…). Prefer the prompt or a pipe: a shell keeps flags.", show_default=False
    ),
]
Release = Annotated[
    bool, typer.Option("--release", help="After an event is given up, deliver its followers. Without this flag they are held.")
]
Attempts = Annotated[int, typer.Option("--max-attempts", min=1, max=100, help="Maximum number of attempts per event.", metavar="N")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds for one attempt.", metavar="SECONDS")]
Beginning = Annotated[bool, typer.Option("--from-beginning", help="Send all events of the log to a new webhook, not only later ones.")]

KEY_BYTES: Final = 32
CHECKED_EVENTS: Final = 1_000
MAX_LISTED_TYPES: Final = 10

group = command_group(
    "Send events over HTTP: signed, in causal order, with retries.", "headrace webhooks add billing https://billing.example/events"
)


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(group, name="webhooks", rich_help_panel="Events in and out")


@group.command("list", epilog=examples("headrace webhooks list --json | jq .webhooks[].lag"))
def list_webhooks(api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the webhooks and their numbers of pending events."""
    settings = read_settings(api_url=api_url)
    with WebhooksClient(settings.url, token=for_looking(settings)) as client:
        page = client.webhooks()
    rows = [
        (one.name, one.url, " ".join(one.types), _match(one), one.state, one.delivered, one.failed, one.dead, one.waiting, one.lag)
        for one in page.webhooks
    ]
    columns: Columns = [
        "name",
        long("url"),
        long("types"),
        long("match"),
        "state",
        *map(number, ("delivered", "failed", "dead", "open", "lag")),
    ]
    render(page, columns, rows, json=json, empty="There are no webhooks. Create one with `headrace webhooks add NAME URL`.")


@group.command("add", epilog=ADD)
def add_webhook(
    name: Name,
    url: Url,
    types: Types = None,
    match: Match = None,
    secret: Secret = None,
    release: Release = False,
    max_attempts: Attempts = 8,
    timeout: Timeout = 10.0,
    from_beginning: Beginning = False,
    api_url: ApiUrl = None,
    home: Home = None,
) -> None:
    """Create a webhook, or replace the one with this name."""
    settings = read_settings(api_url=api_url, home=home)
    pattern = None if match is None else read_match(match)
    credential = for_changing(settings)
    try:
        request = SetWebhook(
            url=url,
            types=types or ["*"],
            match=pattern,
            secret=secret_text(secret, "Secret"),
            policy="release" if release else "hold",
            max_attempts=max_attempts,
            timeout=timeout,
            from_beginning=from_beginning,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]  # without the value, which can be the secret
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"Invalid {field}: {first['msg']}.", hint="See `headrace webhooks add --help`.") from None
    with WebhooksClient(settings.url) as client:
        client.set_webhook(name, request, key=credential)
    out.print(f"[bold green]✓[/] webhook {escape(name)} receives later events.")
    with AdminClient(settings.url, token=credential) as client:
        _warn_of_types(client, request.types)
        if pattern is not None:
            _warn_of_pattern(client, pattern)


def _match(webhook: WebhookSummary) -> str:
    return "" if webhook.match is None else pattern_text(webhook.match)


@group.command("new-secret", epilog=examples("headrace webhooks new-secret > billing-secret"))
def new_secret() -> None:
    """Print a new secret of Standard Webhooks. Nothing stores it: give it to `headrace webhooks add` and to the receiver."""
    out.print(secret_of(secrets.token_bytes(KEY_BYTES)), markup=False)


def _warn_of_types(client: AdminClient, types: Sequence[str]) -> None:
    """Print a note if no recent event has a matching type, which can be a typing error."""
    events = client.read(calls.LIST_EVENTS, {"limit": CHECKED_EVENTS}).events
    known = Counter(event.type for event in events)
    if not known or any(fnmatchcase(type, pattern) for type in known for pattern in types):
        return
    listed = ", ".join(type for type, _ in known.most_common(MAX_LISTED_TYPES))
    out.print(f"Note: none of the newest {count(len(events), 'event')} has a type that matches {' or '.join(types)}.", markup=False)
    out.print(f"Their types are: {listed}. A watch sets the type of its events with type=.", markup=False)


def _warn_of_pattern(client: AdminClient, pattern: Mapping[str, Any]) -> None:
    """Print a note if no event of the first page matches the pattern."""
    newest = client.read(calls.LIST_EVENTS, {"limit": 1}).events
    if newest and not client.read(calls.LIST_EVENTS, {"limit": 1, "match": pattern_text(pattern)}).events:
        out.print("Note: the payloads of the newest events do not match the pattern. To find out why: headrace match --help", markup=False)


@group.command("pause", epilog=examples("headrace webhooks pause billing"))
def pause_webhook(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Pause a webhook. After `resume` it continues where it stopped."""
    _set_state(name, "paused", api_url, home)


@group.command("resume", epilog=examples("headrace webhooks resume billing"))
def resume_webhook(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Resume a webhook."""
    _set_state(name, "active", api_url, home)


@group.command("remove", epilog=examples("headrace webhooks remove billing"))
def remove_webhook(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Remove a webhook and its pending deliveries."""
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        client.remove_webhook(name, key=for_changing(settings))
    out.print(f"Webhook {escape(name)} is deleted.")


@group.command("redrive", epilog=examples("headrace webhooks redrive billing"))
def redrive_webhook(name: Name, api_url: ApiUrl = None, home: Home = None) -> None:
    """Redrive the dead letters of a webhook."""
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        redriven = client.redrive_webhook(name, key=for_changing(settings)).count
    out.print(f"{count(redriven, 'event')} redriven.")


@group.command("deliveries", epilog=examples("headrace webhooks deliveries billing -n 20"))
def list_deliveries(name: Name, limit: Limit = 50, api_url: ApiUrl = None, json: AsJson = False) -> None:
    """List the attempts, the newest first."""
    settings = read_settings(api_url=api_url)
    with WebhooksClient(settings.url, token=for_looking(settings)) as client:
        page = client.deliveries(name, limit)
    rows = [
        (one.seq, one.attempt, one.outcome, str(one.status or "-"), ago(one.at), f"{one.seconds:.3f} s", one.error or "")
        for one in page.deliveries
    ]
    columns: Columns = [number("seq"), number("attempt"), "outcome", "status", "when", "took", problem("error")]
    render(page, columns, rows, json=json, empty="There are no deliveries.")


def _set_state(name: str, state: WebhookState, api_url: str | None, home: Home) -> None:
    settings = read_settings(api_url=api_url, home=home)
    with WebhooksClient(settings.url) as client:
        client.set_webhook_state(name, state, key=for_changing(settings))
    out.print(f"Webhook {escape(name)} is {state}.")

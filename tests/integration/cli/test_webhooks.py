"""`headrace webhooks` and `headrace scopes` against a real API server: their effects and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ApiRefused, HeadraceError, ProjectError, UsageError
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.scopes import ScopeList
from headrace.wire.webhooks import DeliveryList, WebhookList
from support.pipelines.plans import store_next
from support.processes.execution_api import KEY, Api
from support.processes.store import declaration, event, holder, registration

SECRET = "whsec_swordfish+swordfish+swordfish+swordfish="
URL = "https://billing.example/events"


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"API_URL": api.url, "KEY": KEY, "HOME": "/nonexistent"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)


def headrace(*words: str, given: str = "") -> str:
    """Return what a command says; one that fails raises."""
    return CliRunner().invoke(app, words, input=given, catch_exceptions=False).stdout


def listed() -> WebhookList:
    return WebhookList.model_validate_json(headrace("webhooks", "list", "--json"))


def test_a_webhook_is_added_paused_resumed_changed_and_removed() -> None:
    assert "There are no webhooks" in headrace("webhooks", "list")
    assert "billing" in headrace("webhooks", "add", "billing", URL, "--type", "order.*", "--type", "leg", "--release", given=SECRET)
    (one,) = listed().webhooks
    assert (one.name, one.url, one.types, one.policy, one.state) == ("billing", URL, ["order.*", "leg"], "release", "active")
    assert SECRET not in one.model_dump_json()
    headrace("webhooks", "pause", "billing")
    assert listed().webhooks[0].state == "paused"
    headrace("webhooks", "resume", "billing")
    headrace("webhooks", "add", "billing", URL, "--secret", SECRET, "--max-attempts", "3")
    (one,) = listed().webhooks
    assert (one.state, one.types, one.max_attempts, one.policy) == ("active", ["*"], 3, "hold")
    assert "0 events redriven" in headrace("webhooks", "redrive", "billing")
    assert "There are no deliveries" in headrace("webhooks", "deliveries", "billing")
    assert DeliveryList.model_validate_json(headrace("webhooks", "deliveries", "billing", "--json")).deliveries == []
    assert "billing" in headrace("webhooks", "list")
    assert "deleted" in headrace("webhooks", "remove", "billing")
    assert listed().webhooks == []


def test_a_webhook_has_a_pattern_from_the_command_line_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "paid.json"
    path.write_text('{"status": ["paid"],\n "total": [{"numeric": [">", 100]}]}')
    headrace("webhooks", "add", "paid", URL, "--secret", SECRET, "--match", f"@{path}")
    assert listed().webhooks[0].match == {"status": ["paid"], "total": [{"numeric": [">", 100]}]}
    assert '"status":' in "".join(headrace("webhooks", "list").split())
    headrace("webhooks", "add", "paid", URL, "--secret", SECRET, "--match", '{"status": ["paid"]}')
    assert listed().webhooks[0].match == {"status": ["paid"]}
    headrace("webhooks", "add", "paid", URL, "--secret", SECRET)
    assert listed().webhooks[0].match is None
    headrace("webhooks", "remove", "paid")


def test_a_type_or_pattern_that_matches_no_event_causes_a_note(api: Api) -> None:
    words = ("webhooks", "add", "typed", URL, "--secret", SECRET)
    assert "Note" not in headrace(*words, "--type", "num.*", "--match", '{"status": ["paid"]}')  # nothing has come: nothing is known
    holder(api.store, "first").append(event("a", type="headrace.directory.line"), event("b", type="order.paid"))
    said = headrace(*words, "--type", "num.*")
    assert "none of the newest 2 events has a type that matches num.*" in said
    assert "order.paid, headrace.directory.line" in said
    for fits in ("order.*", "*"):
        assert "Note" not in headrace(*words, "--type", fits)
    assert "Note: the payloads of the newest events do not match the pattern" in headrace(*words, "--match", '{"status": ["paid"]}')
    assert "Note" not in headrace(*words, "--match", '{"status": [{"exists": false}]}')
    headrace("webhooks", "remove", "typed")


@pytest.mark.parametrize(
    ("words", "given", "kind", "says"),
    [
        (["add", "x", "billing.example"], SECRET, UsageError, "url: String should match"),
        (["add", "x", URL], "swordfish", UsageError, "The secret is not one of Standard Webhooks"),
        (["add", "x", URL], "", UsageError, "There is no secret"),
        (["add", "x", URL, "--timeout", "0"], SECRET, UsageError, "timeout: Input should be greater than 0"),
        (["add", "x", URL, "--type", ""], SECRET, UsageError, "types.0: String should have at least 1"),
        (["add", "x", URL, "--match", '{"a": [{"prefx": 1}]}'], SECRET, ProjectError, "In --match, a has the operator 'prefx'"),
        (["add", "x", URL, "--match", "{a}"], SECRET, UsageError, "The pattern of --match is not JSON"),
        (["add", "x", URL, "--match", "@absent.json"], SECRET, UsageError, "The file absent.json cannot be read"),
        (["add", "a b", URL], SECRET, ApiRefused, "should match pattern"),
        *(([what, "nobody"], "", ApiRefused, "no webhook 'nobody'") for what in ("pause", "resume", "remove", "redrive", "deliveries")),
    ],
)
def test_errors_do_not_contain_the_secret(words: list[str], given: str, kind: type[HeadraceError], says: str) -> None:
    with pytest.raises(kind, match=says) as refused:
        headrace("webhooks", *words, given=given)
    assert "swordfish" not in f"{refused.value} {refused.value.hint}"


def test_a_new_secret_is_accepted_and_differs_from_others() -> None:
    first, second = (headrace("webhooks", "new-secret").strip() for _ in range(2))
    assert first != second
    headrace("webhooks", "add", "fresh", URL, given=first)
    headrace("webhooks", "remove", "fresh")


def test_changes_need_the_deployment_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KEY", "wrong")
    with pytest.raises(ApiRefused):
        headrace("webhooks", "add", "x", URL, given=SECRET)
    monkeypatch.delenv("HEADRACE_KEY")
    with pytest.raises(UsageError, match="deployment key"):
        headrace("webhooks", "remove", "x")
    with pytest.raises(UsageError, match="deployment key"):
        headrace("scopes", "remove", "x")


def test_an_unused_scope_is_removed(api: Api) -> None:
    job = api.store.jobs.register(registration("pipeline")).id
    api.store.projects.declare(job, "flights", declaration("first", pipelines=["delays"]))
    store_next(api.store, job, "old/project", Cursor(cursor=0, batch=1))
    assert "old/project" in headrace("scopes")
    with pytest.raises(ApiRefused, match=f"read by job {job}"):
        headrace("scopes", "remove", "old/project")
    api.store.jobs.complete(job, CompleteJob(state="succeeded"))
    assert "deleted" in headrace("scopes", "remove", "old/project")
    assert ScopeList.model_validate_json(headrace("scopes", "list", "--json")).scopes == []
    with pytest.raises(ApiRefused, match="No pipeline has a scope 'old/project'"):
        headrace("scopes", "remove", "old/project")

"""Triggers and pipelines read connections and variables from the environment, then from the cache, then from the API."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.connection import Connection
from headrace.errors import ApiRefused, ApiUnavailable, SecretError
from headrace.triggers import secrets
from headrace.triggers.masking import mask
from headrace.triggers.secrets import CACHE_SECONDS, MAX_CACHED_VALUES, Kind, SecretBackend, Secrets
from headrace.wire.secrets import ConnectionValue, VariableValue

Answer = ConnectionValue | VariableValue


class Api:
    """An api that knows one connection and every variable but 'none', and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None

    def ask(self, kind: Kind, name: str) -> Answer:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        if name == "none":
            raise ApiRefused(f"There is no {kind} '{name}'.", status=404, problem="not-found")
        if kind == "connection":
            return ConnectionValue(id=name, kind="http", host="api.example", password="from-the-api")
        return VariableValue(key=name, value=f"value-of-{name}", secret=True)

    async def ask_async(self, kind: Kind, name: str) -> Answer:
        return self.ask(kind, name)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(secrets, "SECRETS", Secrets(Clock()))
    secrets.SECRETS.set_backend(SecretBackend(made.ask, made.ask_async))
    return made


def turn(seconds: float) -> None:
    clock = secrets.SECRETS._clock
    assert isinstance(clock, Clock)
    clock.now += seconds


def test_fetched_secrets_are_cached_for_a_limited_time_and_masked(api: Api) -> None:
    assert secrets.get_connection("files") == Connection("files", "http", "api.example", password="from-the-api")
    turn(CACHE_SECONDS - 1)
    assert secrets.get_connection("files").password == "from-the-api"
    assert api.asked == ["files"]
    turn(1)
    secrets.get_connection("files")
    assert api.asked == ["files", "files"]
    assert mask("login with from-the-api") == "login with ***"


async def test_a_secret_that_must_be_fetched_is_awaited_in_the_event_loop(api: Api) -> None:
    with pytest.raises(SecretError, match="would block the loop") as refused:
        secrets.get_variable("region")
    assert refused.value.hint == "Write: await aget_variable('region')"
    assert api.asked == []
    assert await secrets.aget_variable("region") == "value-of-region"
    assert secrets.get_variable("region") == "value-of-region", "it is known now"
    assert await asyncio.to_thread(secrets.get_variable, "other") == "value-of-other"


JSON_TEXT = '{"kind": "http", "host": "dev.example", "password": "from-the-shell"}'


@pytest.mark.parametrize("text", ["http://:from-the-shell@dev.example", JSON_TEXT])
def test_the_environment_takes_precedence_and_is_logged_once(
    api: Api, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_CONNECTION_MY_FILES", text)
    monkeypatch.setenv("HEADRACE_VARIABLE_REGION", "here")
    for _ in range(3):
        assert secrets.get_connection("my-files").password == "from-the-shell"
        assert secrets.get_variable("region") == "here"
    assert api.asked == []
    said = capsys.readouterr().out
    assert said.count("HEADRACE_CONNECTION_MY_FILES") == 1
    assert said.count("HEADRACE_VARIABLE_REGION") == 1
    assert "from-the-shell" not in mask(said)


def test_a_default_replaces_only_a_missing_variable(api: Api) -> None:
    assert secrets.get_variable("none", None) is None
    assert secrets.get_variable("there", None) == "value-of-there"
    with pytest.raises(SecretError, match="no variable 'none'"):
        secrets.get_variable("none")
    api.error = ApiRefused("No key of this api opens variable 'sealed'.", hint="Bring the key back.", status=409, problem="unreadable")
    with pytest.raises(SecretError, match="No key") as refused:
        secrets.get_variable("sealed", None)
    assert refused.value.hint == "Bring the key back."
    api.error = ApiUnavailable("away")
    with pytest.raises(ApiUnavailable):
        secrets.get_variable("away", None)


def test_the_cache_of_secrets_is_bounded(api: Api) -> None:
    for number in range(MAX_CACHED_VALUES + 10):
        secrets.get_variable(f"number-{number}")
    assert len(secrets.SECRETS._cached) == MAX_CACHED_VALUES


def test_without_an_api_the_error_has_a_hint() -> None:
    alone = Secrets()
    with pytest.raises(SecretError, match="no api is known here") as refused:
        alone.get("connection", "my.files")
    assert "HEADRACE_CONNECTION_MY_FILES" in (refused.value.hint or "")

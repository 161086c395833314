"""Connections and variables for triggers and pipelines: from the environment if it has them, otherwise from the
API.

Fetched values are cached for a minute. Logs and reports of this process mask all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, TypeAlias

import structlog

from headrace.core.connection import Connection, parse_connection
from headrace.errors import ApiRefused, SecretError
from headrace.triggers.masking import mask
from headrace.wire.secrets import ConnectionValue, VariableValue

Kind = Literal["connection", "variable"]
Value: TypeAlias = Connection | str

CACHE_SECONDS = 60.0
MAX_CACHED_VALUES = 1_000
MAX_WAIT_SECONDS = 60.0
_MISSING: Any = object()
_PREFIX: dict[Kind, str] = {"connection": "HEADRACE_CONNECTION_", "variable": "HEADRACE_VARIABLE_"}


@dataclass(frozen=True, slots=True)
class SecretBackend:
    """The source of secrets of this process: `ask` blocks, for threads without a loop; `ask_async` is awaited in its loop."""

    ask: Callable[[Kind, str], ConnectionValue | VariableValue]
    ask_async: Callable[[Kind, str], Awaitable[ConnectionValue | VariableValue]]


class Secrets:
    """The cached connections and variables of one process. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._source: SecretBackend | None = None
        self._cached: OrderedDict[tuple[Kind, str], tuple[float, Value]] = OrderedDict()
        self._logged: set[str] = set()
        self._lock = Lock()
        self._log = structlog.get_logger(__name__)

    def set_backend(self, source: SecretBackend | None) -> None:
        """Use `source` from now on, and drop cached values."""
        with self._lock:
            self._source = source
            self._cached.clear()

    def get(self, kind: Kind, name: str) -> Value:
        """Return a cached value, or fetch it from the API.

        Raises:
            SecretError: It does not exist, is invalid, or this is the loop's thread, which must not block.
            ApiUnavailable: The API does not respond.
        """
        value = self._known(kind, name)
        if value is not None:
            return value
        if _in_loop():
            raise SecretError(
                f"get_{kind}({name!r}) would block the loop that all triggers share.", hint=f"Write: await aget_{kind}({name!r})"
            )
        source = self._require_backend(kind, name)
        try:
            return self._keep(kind, name, source.ask(kind, name))
        except ApiRefused as error:
            raise _secret_error(error) from None

    async def aget(self, kind: Kind, name: str) -> Value:
        """Return a value without blocking the loop; raises as `get` does."""
        value = self._known(kind, name)
        if value is not None:
            return value
        source = self._require_backend(kind, name)
        try:
            return self._keep(kind, name, await source.ask_async(kind, name))
        except ApiRefused as error:
            raise _secret_error(error) from None

    def _known(self, kind: Kind, name: str) -> Value | None:
        environment_value = self._from_environment(kind, name)
        if environment_value is not None:
            return environment_value
        with self._lock:
            until, value = self._cached.get((kind, name), (0.0, None))
            return value if until > self._clock() else None

    def _from_environment(self, kind: Kind, name: str) -> Value | None:
        variable = _variable(kind, name)
        text = os.environ.get(variable)
        if text is None:
            return None
        if variable not in self._logged:
            self._logged.add(variable)
            self._log.warning(f"{kind} from the environment, not from the api", name=name, variable=variable)
        if kind == "variable":
            mask.add([text])
            return text
        connection = parse_connection(name, text)
        mask.add(connection.secrets())
        return connection

    def _require_backend(self, kind: Kind, name: str) -> SecretBackend:
        if self._source is None:
            raise SecretError(
                f"The {kind} '{name}' cannot be fetched: no api is known here.",
                hint=f"In development set {_variable(kind, name)}; to Spark's executors, hand the value on.",
            )
        return self._source

    def _keep(self, kind: Kind, name: str, answer: ConnectionValue | VariableValue) -> Value:
        value: Value
        if isinstance(answer, VariableValue):
            value = answer.value
            mask.add([value] if answer.secret else [])
        else:
            value = Connection(**answer.model_dump())
            mask.add(value.secrets())
        with self._lock:
            self._cached[kind, name] = self._clock() + CACHE_SECONDS, value
            self._cached.move_to_end((kind, name))
            while len(self._cached) > MAX_CACHED_VALUES:
                self._cached.popitem(last=False)
        return value


SECRETS = Secrets()
"""The secrets of this process. The process's entry point sets their backend."""


def get_connection(id: str) -> Connection:
    """Return a connection, in a pipeline or task. Raises `SecretError`, or `ApiUnavailable` if a retry may succeed."""
    return _connection(SECRETS.get("connection", id))


async def aget_connection(id: str) -> Connection:
    """Return a connection, in a trigger or producer. Raises as `get_connection` does."""
    return _connection(await SECRETS.aget("connection", id))


def get_variable(key: str, default: Any = _MISSING) -> Any:
    """Return the text of a variable, or `default` if it does not exist, in a pipeline or task. Raises as `get_connection` does."""
    try:
        return SECRETS.get("variable", key)
    except SecretError as error:
        return _default(error, default)


async def aget_variable(key: str, default: Any = _MISSING) -> Any:
    """Return the text of a variable, or `default` if it does not exist, in a trigger or producer. Raises as `get_connection` does."""
    try:
        return await SECRETS.aget("variable", key)
    except SecretError as error:
        return _default(error, default)


def _variable(kind: Kind, name: str) -> str:
    """Return the name of the environment variable that has precedence over the API."""
    return _PREFIX[kind] + re.sub(r"\W", "_", name).upper()


class SecretMissing(SecretError):
    """No secret has this name."""


def _secret_error(error: ApiRefused) -> SecretError:
    return (SecretMissing if error.status == 404 else SecretError)(str(error), hint=error.hint)


def _default(error: SecretError, default: Any) -> Any:
    if default is _MISSING or not isinstance(error, SecretMissing):
        raise error
    return default


def _connection(value: Value) -> Connection:
    if isinstance(value, str):
        raise TypeError("a variable is not a connection")
    return value


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

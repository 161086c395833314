"""Connections and variables, as triggers and pipelines get them: from the environment where it has them, otherwise from the api.

What was fetched is kept for a minute. All of it is masked in what this process logs and reports.
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

KEPT_SECONDS = 60.0
MOST_KEPT = 1_000
LONGEST_WAIT = 60.0
_MISSING: Any = object()
_PREFIX: dict[Kind, str] = {"connection": "HEADRACE_CONNECTION_", "variable": "HEADRACE_VARIABLE_"}


@dataclass(frozen=True, slots=True)
class SecretBackend:
    """Whom this process asks: `ask` blocks, and is called in threads without a loop; `ask_async` is awaited in the loop it is for."""

    ask: Callable[[Kind, str], ConnectionValue | VariableValue]
    ask_async: Callable[[Kind, str], Awaitable[ConnectionValue | VariableValue]]


class Secrets:
    """What one process knows of connections and variables. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._source: SecretBackend | None = None
        self._kept: OrderedDict[tuple[Kind, str], tuple[float, Value]] = OrderedDict()
        self._told: set[str] = set()
        self._lock = Lock()
        self._log = structlog.get_logger(__name__)

    def set_backend(self, source: SecretBackend | None) -> None:
        """Ask `source` from now on; forget what another said."""
        with self._lock:
            self._source = source
            self._kept.clear()

    def get(self, kind: Kind, name: str) -> Value:
        """Return a value at once, or once the api has answered.

        Raises:
            SecretError: There is none, it cannot be used, or this is the loop's thread, which must not wait.
            ApiUnavailable: The api does not respond.
        """
        found = self._known(kind, name)
        if found is not None:
            return found
        if _in_loop():
            raise SecretError(
                f"get_{kind}({name!r}) would block the loop that all triggers share.", hint=f"Write: await aget_{kind}({name!r})"
            )
        source = self._asked(kind, name)
        try:
            return self._keep(kind, name, source.ask(kind, name))
        except ApiRefused as error:
            raise _refused(error) from None

    async def aget(self, kind: Kind, name: str) -> Value:
        """Return a value without blocking the loop; raises as `get` does."""
        found = self._known(kind, name)
        if found is not None:
            return found
        source = self._asked(kind, name)
        try:
            return self._keep(kind, name, await source.ask_async(kind, name))
        except ApiRefused as error:
            raise _refused(error) from None

    def _known(self, kind: Kind, name: str) -> Value | None:
        given = self._from_environment(kind, name)
        if given is not None:
            return given
        with self._lock:
            until, value = self._kept.get((kind, name), (0.0, None))
            return value if until > self._clock() else None

    def _from_environment(self, kind: Kind, name: str) -> Value | None:
        variable = _variable(kind, name)
        text = os.environ.get(variable)
        if text is None:
            return None
        if variable not in self._told:
            self._told.add(variable)
            self._log.warning(f"{kind} from the environment, not from the api", name=name, variable=variable)
        if kind == "variable":
            mask.add([text])
            return text
        found = parse_connection(name, text)
        mask.add(found.secrets())
        return found

    def _asked(self, kind: Kind, name: str) -> SecretBackend:
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
            self._kept[kind, name] = self._clock() + KEPT_SECONDS, value
            self._kept.move_to_end((kind, name))
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return value


SECRETS = Secrets()
"""Those of this process; who starts it says whom to ask."""


def get_connection(id: str) -> Connection:
    """Return a connection; for pipelines and tasks. Raises `SecretError`, or `ApiUnavailable` when it may be tried again."""
    return _connection(SECRETS.get("connection", id))


async def aget_connection(id: str) -> Connection:
    """Return a connection; for triggers and producers. Raises as `get_connection` does."""
    return _connection(await SECRETS.aget("connection", id))


def get_variable(key: str, default: Any = _MISSING) -> Any:
    """Return a variable's text, or `default` where there is no such variable; for pipelines and tasks. Raises as `get_connection` does."""
    try:
        return SECRETS.get("variable", key)
    except SecretError as error:
        return _default(error, default)


async def aget_variable(key: str, default: Any = _MISSING) -> Any:
    """Return a variable's text, or `default` where there is no such variable; for triggers and producers."""
    try:
        return await SECRETS.aget("variable", key)
    except SecretError as error:
        return _default(error, default)


def _variable(kind: Kind, name: str) -> str:
    """Return the name of the environment's variable that wins over the api."""
    return _PREFIX[kind] + re.sub(r"\W", "_", name).upper()


class _Missing(SecretError):
    """There is none of this name."""


def _refused(error: ApiRefused) -> SecretError:
    return (_Missing if error.status == 404 else SecretError)(str(error), hint=error.hint)


def _default(error: SecretError, default: Any) -> Any:
    if default is _MISSING or not isinstance(error, _Missing):
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

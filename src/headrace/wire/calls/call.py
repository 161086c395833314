"""One call of an API: its address, its models, who may make it, and the effect of a repetition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, NoneType
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast
from urllib.parse import quote

from headrace.wire.base import WireModel

B = TypeVar("B", bound=WireModel | None)
R = TypeVar("R", bound=WireModel | bytes | None)

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]
Caller: TypeAlias = Literal["deployment key", "any job", "triggerer", "pipeline", "worker", "admin", "reader", "anyone"]
"""`admin`: the deployment key or a token of scope `admin`. `reader`: on loopback anyone, otherwise a token of scope `read`."""

Query: TypeAlias = Mapping[str, int | float | str | None]
"""Query parameters by name. None omits a parameter."""

NO_QUERY: Final[Query] = MappingProxyType({})

NOTHING: Final = NoneType
"""The request or the response has no body."""


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[B, R]):
    """A call with a request body `B` and a response body `R`, which are `bytes` if they are not JSON.

    `path` is FastAPI's: `{scope:path}` accepts slashes. `repetition` is the effect of the same request sent again; a call without one
    changes nothing. `repeatable` is false if a repetition changes more than the first request did.
    """

    method: Method
    path: str
    request: type[B]
    response: type[R]
    caller: Caller
    repetition: str = ""
    repeatable: bool = True

    @property
    def template(self) -> str:
        """The path as OpenAPI has it: `{scope}`."""
        return self.path.replace(":path}", "}")

    @property
    def name(self) -> str:
        """The method and the template."""
        return f"{self.method} {self.template}"

    @property
    def changes(self) -> bool:
        """Whether the call changes data."""
        return bool(self.repetition)

    def url(self, parameters: Mapping[str, int | str]) -> str:
        """Return the path with its parameters. Raises `KeyError` if one is missing."""
        if "{" not in self.path:
            return self.path
        return self.template.format_map({name: quote(str(value), safe="") for name, value in parameters.items()})

    @staticmethod
    def query(parameters: Query) -> dict[str, int | float | str]:
        """Return the query parameters to send."""
        return {name: value for name, value in parameters.items() if value is not None}

    def decode(self, content: bytes) -> R:
        """Return a response body as `R`. Raises `ValidationError` if it is invalid."""
        if issubclass(self.response, WireModel):
            return self.response.model_validate_json(content)
        return cast(R, content if self.response is bytes else None)


def calls_in(module: Mapping[str, Any]) -> tuple[Call[Any, Any], ...]:
    """Return the calls that a module defines, in their order."""
    return tuple(value for value in module.values() if isinstance(value, Call))

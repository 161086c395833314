"""The decoder that an upstream declares with `decode=`: a format, or a function of the user.

An upstream with a function is read in a process for users' code, as an upstream of the user is. The function is called in the event loop
of that process, where a function that blocks is detected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, TypeAlias

import msgspec

from headrace.core.values.limits import has_non_finite
from headrace.core.values.text import describe_error
from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.decoding import DECODERS, NULL, Decoded, Decoder, Format
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.triggers.raw_event import RawHeaders
from headrace.triggers.upstream import Upstream

Decoding: TypeAlias = Format | str
"""How the value of a message becomes JSON: a format, or the path of a function such as `shop.decoding:order`."""

ValueFunction: TypeAlias = Callable[[bytes, Mapping[str, str]], Any]
"""Decode a value: its bytes, and the headers as text. Returns a JSON value, or JSON text as `bytes`. Any error makes a dead letter."""

FUNCTION_HINT: Final = "Name a function of a module that can be imported: 'shop.decoding:order'."

_encode: Final = msgspec.json.Encoder().encode


class DecodingUpstream(Upstream):
    """An upstream that decodes the values of its messages."""

    decodings: Sequence[str] = ()
    """The formats and functions that it declares."""

    @property
    def has_user_code(self) -> bool:
        """Whether a function of the user decodes the values."""
        return any(map(is_function, self.decodings))

    def check_user_code(self) -> None:
        """Import the functions. Raises as `decoder_of` does."""
        for decode in filter(is_function, self.decodings):
            decoder_of(decode)


def check_decoding(decode: object, names: Sequence[str] = tuple(DECODERS)) -> str:
    """Return one of `names`, or the path of a function. Imports nothing. Raises `UpstreamError`."""
    if isinstance(decode, str) and (decode in names or is_function(decode)):
        return decode
    if callable(decode):
        return _path_of(decode)
    raise UpstreamError(f"Invalid decode {decode!r}.", hint=f"Use one of: {', '.join(names)}. Or a function: 'shop.decoding:order'.")


def is_function(decode: str) -> bool:
    """Return whether this is the path of a function."""
    module, separator, name = decode.partition(":")
    return bool(separator) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def decoder_of(decode: Decoding) -> Decoder:
    """Return the decoder. A function is imported at the first call, and gets no message without a value: that is null.

    Raises:
        ProjectError: The module of the function is not allowed.
        UpstreamError: The function cannot be imported, or is a coroutine function.
    """
    return _imported(decode) if is_function(decode) else DECODERS[decode]


def _path_of(function: Callable[..., object]) -> str:
    path = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    if not is_function(path) or path.startswith("__main__:"):
        raise UpstreamError(f"Invalid decode {path!r}: another process cannot import it.", hint=FUNCTION_HINT)
    return path


@cache
def _imported(path: str) -> Decoder:
    module, _, name = path.partition(":")
    IMPORT_ALLOWLIST.check(f"{module}.{name}", "The decoder")
    try:
        function = getattr(import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise UpstreamError(f"The decoder {path!r} cannot be imported: {describe_error(error)}.", hint=FUNCTION_HINT) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise UpstreamError(f"The decoder {path!r} is not a function that returns a value.", hint="Write it with def, not with async def.")
    return partial(_decode, path, function)


def _decode(path: str, function: ValueFunction, value: bytes | None, headers: RawHeaders) -> Decoded:
    if value is None:
        return Decoded(NULL)
    try:
        result = function(value, {name: content.decode(errors="replace") for name, content in headers if content is not None})
        data = result if type(result) is bytes else _encode(result)
        is_finite = data is result or not has_non_finite(result, data)
    except BaseException as error:  # a user's function may raise anything, including SystemExit: it fails this message only
        raise MalformedEvent(f"The decoder {path} failed: {describe_error(error)}") from error
    if not is_finite:
        raise MalformedEvent(f"The decoder {path} returned a NaN or an Infinity, which JSON does not have.")
    return Decoded(data)

"""Errors of an upstream, as a stream ends with them."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced
from headrace.streams.upstream.poll import presentable
from headrace.triggers.masking import mask


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("kind", [UpstreamError, UpstreamFenced, StreamError])
def test_an_error_whose_text_has_a_secret_keeps_its_class_and_hint(kind: type[HeadraceError]) -> None:
    mask.add(["SCRAM-SHA-512"])
    shown = presentable(kind("Login refused with SCRAM-SHA-512.", hint="Correct the password."))
    assert (type(shown), str(shown)) == (kind, "Login refused with ***.")
    assert isinstance(shown, HeadraceError)
    assert shown.hint == "Correct the password."


def test_an_error_with_a_printable_text_is_not_replaced() -> None:
    error = ValueError("no such topic")
    assert presentable(error) is error


@pytest.mark.parametrize("error", [Unprintable(), SystemExit("stopped"), ValueError("x" * 100_000)])
def test_another_error_without_a_printable_text_is_described(error: BaseException) -> None:
    shown = presentable(error)
    assert type(shown) is StreamError
    assert str(shown).startswith(f"The upstream raised {type(error).__name__}")

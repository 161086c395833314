"""Clients that cannot be opened: the error has a hint for their own service."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.aws.client import Service, open_client
from headrace.sources.objects.s3.client import SERVICE as S3
from headrace.sources.sqs.client import SERVICE as SQS


@pytest.fixture(autouse=True)
def unconfigured_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the AWS configuration of this machine."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


async def error_of(service: Service, text: str) -> UpstreamError:
    async with AsyncExitStack() as stack:
        with pytest.raises(UpstreamError) as raised:
            await open_client(service, parse_connection("main", text), stack, answer_seconds=1.0, max_requests=1)
    return raised.value


@pytest.mark.parametrize(
    ("service", "message", "hint"),
    [
        (SQS, "SQS cannot be read: its client library is not installed: ", "Run: pip install 'headrace[sqs]'"),
        (S3, "Objects cannot be read: the client library is not installed: ", "Run: pip install 'headrace[objects]'"),
    ],
)
async def test_a_missing_client_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, service: Service, message: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, "aiobotocore.session", None)
    error = await error_of(service, f"{service.name}://?region=eu-west-1")
    assert str(error).startswith(message)
    assert error.hint == hint


async def test_a_connection_without_a_region_has_the_hint_of_its_service() -> None:
    error = await error_of(SQS, "sqs://key:secret@")
    assert str(error).startswith("The connection 'main' cannot be used: ")
    assert error.hint == "Give the connection a region: sqs://?region=eu-west-1"


@pytest.mark.parametrize("service", [SQS, S3])
async def test_a_connection_of_another_kind_has_the_hint_of_the_service(service: Service) -> None:
    error = await error_of(service, "kafka://broker")
    assert str(error) == f"Connection 'main' is of kind 'kafka', not '{service.name}' or 'aws'."
    assert error.hint == service.hint


@pytest.mark.parametrize("service", [SQS, S3])
async def test_an_unknown_profile_is_named(service: Service) -> None:
    error = await error_of(service, f"{service.name}://?region=eu-west-1&profile=absent")
    assert "absent" in str(error)
    assert error.hint == "Correct the profile in the extra of the connection, or create it on this machine."

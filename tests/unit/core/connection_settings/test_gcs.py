"""Connections to Google Cloud Storage."""

from __future__ import annotations

import json

import pytest

from headrace.core.connection import parse_connection
from headrace.core.connection_settings.gcs import ADDRESS, read_settings
from headrace.errors import UpstreamError

KEY = {"type": "service_account", "project_id": "shop", "private_key": "SECRET"}


def test_a_connection_without_settings_has_the_credentials_of_the_machine() -> None:
    settings = read_settings(parse_connection("gcs", "gcs://"))
    assert settings == (ADDRESS, None, None, None, False, None)


@pytest.mark.parametrize("key", [KEY, json.dumps(KEY)])
def test_the_key_of_a_service_account_is_an_object_or_a_text(key: object) -> None:
    settings = read_settings(parse_connection("gcs", json.dumps({"kind": "gcs", "extra": {"service_account": key}})))
    assert (settings.key, settings.project) == (KEY, "shop")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3://", "of kind"),
        ("gcs://ada:SECRET@", "login or a password"),
        ("gcs://?service_account=SECRET", "not the key of a service account"),
        ('gcs://?service_account={"type":"authorized_user"}', "not the key of a service account"),
        ("gcs://?anonymous=yes", "invalid setting anonymous"),
        ("gcs://?anonymous=true&key_file=/k", "several credentials"),
        ("gcs://localhost?scheme=http", "without TLS"),
        ("gcs://localhost?scheme=ftp&anonymous=true", "invalid address"),
        ("gcs://?projekt=shop", "unknown settings: projekt"),
    ],
)
def test_wrong_settings_are_refused_and_show_no_secret(text: str, message: str) -> None:
    with pytest.raises(UpstreamError, match=message) as refused:
        read_settings(parse_connection("gcs", text))
    assert "SECRET" not in f"{refused.value} {refused.value.hint}"

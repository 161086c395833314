"""Errors of object stores, as obstore and deltalake write them."""

from __future__ import annotations

import pytest

from headrace.errors import PipelineError, TablesRefused, TablesUnavailable
from headrace.pipeline.table_storage.service_errors import service_errors

NOT_SENT = "Generic S3 error: Error performing GET http://127.0.0.1:1/c in 0.6s, after 5 retries - HTTP error: error sending request"
XML = "Server returned non-2xx status code: {status}: <Error><Code>{code}</Code><Message>Not now.</Message></Error>"


@pytest.mark.parametrize(
    ("scheme", "text", "kind", "message", "hint"),
    [
        (
            "s3",
            f'{NOT_SENT}\n\nDebug source:\nOs {{\n code: 111,\n message: "Connection refused",\n}}',
            TablesUnavailable,
            "error sending request: Connection refused",
            "reachable",
        ),
        (
            "s3",
            f'{NOT_SENT}\n\nDebug source:\n"dns error",\n Custom {{\n error: "failed to lookup address information",\n}}',
            TablesUnavailable,
            "error sending request: failed to lookup address information",
            "reachable",
        ),
        (
            "az",
            f"{NOT_SENT}\n\nDebug source:\n InvalidCertificate(\n   UnknownIssuer,\n )",
            TablesRefused,
            "the certificate of the server is not valid: UnknownIssuer.",
            "SSL_CERT_FILE",
        ),
        ("s3", XML.format(status=503, code="SlowDown"), TablesUnavailable, "Not now. (SlowDown)", "reachable"),
        ("s3", XML.format(status=403, code="Whatever"), TablesRefused, "Not now. (Whatever)", "s3:ListBucket"),
        ("s3", XML.format(status=403, code="RequestTimeTooSkewed"), TablesRefused, "(RequestTimeTooSkewed)", "clock of this machine"),
        ("az", XML.format(status=403, code="AuthorizationPermissionMismatch"), TablesRefused, "Mismatch", "Storage Blob Data Contributor"),
        ("az", XML.format(status=404, code="ContainerNotFound"), TablesRefused, "ContainerNotFound", "creates no containers"),
    ],
)
def test_an_error_is_named_with_what_to_do(scheme: str, text: str, kind: type[PipelineError], message: str, hint: str) -> None:
    with pytest.raises(kind) as caught, service_errors(scheme, "The tables cannot be reached"):
        raise OSError(text)
    assert str(caught.value).startswith("The tables cannot be reached: ")
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("error", [FileNotFoundError("Object at location x not found"), TablesRefused("no"), KeyError("no service")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, service_errors("s3", "The tables cannot be reached"):
        raise error
    assert caught.value is error

"""Errors of SQS as errors of Headrace, and failures of single messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.sources.aws import service_errors

PERMISSIONS: Final = "sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility"
_ALLOW: Final = f"Allow this user on the queue: {PERMISSIONS}. If the queue is encrypted, allow kms:Decrypt on its key too."
_QUEUE: Final = "Create the queue, or correct its name, the region of the connection or the account. Headrace creates no queues."

REJECTED: Final[Mapping[str, str]] = {
    **service_errors.REJECTED,
    "AccessDenied": _ALLOW,
    "AccessDeniedException": _ALLOW,
    "KmsAccessDenied": _ALLOW,
    "KMS.AccessDeniedException": _ALLOW,
    "KmsDisabled": "Enable the key of the queue.",
    "KMS.DisabledException": "Enable the key of the queue.",
    "AWS.SimpleQueueService.NonExistentQueue": _QUEUE,
    "QueueDoesNotExist": _QUEUE,
    "NoRegionError": "Give the connection a region: sqs://?region=eu-west-1",
}
"""Errors that another attempt does not change, with what to do."""

_ALLOW_SEND: Final = (
    "Allow this user on the dead-letter queue: sqs:GetQueueUrl, sqs:SendMessage. "
    "If the queue is encrypted, allow kms:GenerateDataKey and kms:Decrypt on its key too."
)
_DENIED: Final = ("AccessDenied", "AccessDeniedException", "KmsAccessDenied", "KMS.AccessDeniedException")
REJECTED_SENDS: Final[Mapping[str, str]] = {**REJECTED, **dict.fromkeys(_DENIED, _ALLOW_SEND)}
"""The same for requests that send."""

INVALID_RECEIPTS: Final = frozenset(
    {
        "ReceiptHandleIsInvalid",
        "InvalidParameterValue",
        "InvalidReceiptHandle",
        "MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight",
    }
)
"""Codes of single messages whose receipt is too old, or which another reader has deleted."""


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed."""
    return service_errors.described(what, error, REJECTED)


def described_send(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client in a request that sends."""
    return service_errors.described(what, error, REJECTED_SENDS)


def is_receipt_invalid(failure: Mapping[str, Any]) -> bool:
    """Return whether the failure of one message in an answer says that another attempt with its receipt fails too."""
    return bool(failure.get("SenderFault")) and failure.get("Code") in INVALID_RECEIPTS


def failure_text(failure: Mapping[str, Any]) -> str:
    """Return the code and the reason of one message's failure in an answer."""
    return ": ".join(str(failure[name]) for name in ("Code", "Message") if failure.get(name))

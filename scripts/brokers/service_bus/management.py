"""Answer the requests to `$cbs` and to `ENTITY/$management`: each is a message with an operation, and so is each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, int32  # type: ignore[import-not-found]
from proton import Message as ProtonMessage

from .codec import milliseconds, render
from .entities import Entity, Lock, LockLostError
from .faults import BUSY_CONDITION, BUSY_TEXT, Faults
from .tokens import RejectedTokenError, scope

VENDOR: Final = "com.microsoft:"
MAX_BROWSED_BYTES: Final = 256 * 1024
MAX_SESSIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, and the tokens of the locks that the request has ended."""

    status: int
    text: str = "OK"
    condition: str | None = None
    body: Any = None
    ended: list[UUID] = field(default_factory=list)
    has_messages: bool = False


BUSY_ANSWER: Final = Answer(503, BUSY_TEXT, BUSY_CONDITION)


def reply(request: Any, answer: Answer, *, is_token: bool) -> Any:
    """Return the message of an answer. That to a token has its fields under other names."""
    status, text = ("status-code", "status-description") if is_token else ("statusCode", "statusDescription")
    properties: dict[str, Any] = {status: int32(answer.status), text: answer.text}
    if answer.condition:
        properties["error-condition" if is_token else "errorCondition"] = answer.condition
    return ProtonMessage(correlation_id=request.id, properties=properties, body={} if answer.body is None else answer.body)


def answer_token(request: Any, faults: Faults, allowed: set[str]) -> Answer:
    """Check a token, and add the path below which it allows everything."""
    if faults.on_token():
        return Answer(401, "InvalidSignature: The token has an invalid signature.", "amqp:unauthorized-access")
    try:
        allowed.add(scope(str(request.body), str((request.properties or {}).get("name", "")), time.time()))
    except RejectedTokenError as cause:
        return Answer(401, str(cause), "amqp:unauthorized-access")
    return Answer(202, "Accepted")


def carry_out(entity: Entity, operation: str, body: Any, now: float) -> Answer:
    """Carry out an operation on a queue, subscription or sub-queue, and return the answer."""
    values = body if isinstance(body, dict) else {}
    known = OPERATIONS.get(operation.removeprefix(VENDOR))
    if known is None:
        return Answer(501, f"The operation {operation} is not implemented.", "amqp:not-implemented")
    try:
        return known(entity, values, now)
    except LockLostError:
        text = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
        return Answer(410, text, VENDOR + "message-lock-lost")
    except (KeyError, TypeError, ValueError) as error:
        return Answer(400, f"The request is invalid: {error!r}.", VENDOR + "argument-error")


def _renew_lock(entity: Entity, values: dict[str, Any], now: float) -> Answer:
    ends = entity.renew(_tokens(values), now)
    return Answer(200, body={"expirations": Array(UNDESCRIBED, Data.TIMESTAMP, *(milliseconds(end) for end in ends))})


def _update_disposition(entity: Entity, values: dict[str, Any], now: float) -> Answer:
    """Settle messages. Those of a session are settled over the link that received them only."""
    if entity.settings.requires_session:
        return Answer(410, "The session lock is not held by this link.", VENDOR + "session-lock-lost")
    tokens = list(dict.fromkeys(_tokens(values)))
    settle = _settlement(entity, values)
    locks = [entity.holds(token, now) for token in tokens]
    for lock in locks:
        settle(lock)
    return Answer(200, ended=tokens, has_messages=values["disposition-status"] == "abandoned")


def _settlement(entity: Entity, values: dict[str, Any]) -> Callable[[Lock], None]:
    match values["disposition-status"]:
        case "completed":
            return entity.complete
        case "abandoned":
            return lambda lock: entity.release(lock, counts=True)
        case "defered":  # so it is spelled by the service
            return entity.defer
        case "suspended":
            reason, description = str(values.get("deadletter-reason") or ""), str(values.get("deadletter-description") or "")
            return lambda lock: entity.bury(lock, reason, description)
    raise ValueError(values["disposition-status"])


def _tokens(values: dict[str, Any]) -> Iterable[UUID]:
    tokens = values["lock-tokens"]
    return list(tokens.elements if isinstance(tokens, Array) else tokens)


def _peek_message(entity: Entity, values: dict[str, Any], _now: float) -> Answer:
    matches, size = list[dict[str, bytes]](), 0
    for stored in entity.browse(int(values["from-sequence-number"]), int(values["message-count"]), values.get("session-id")):
        encoded = render(stored, None)
        size += len(encoded)
        if matches and size > MAX_BROWSED_BYTES:
            break
        matches.append({"message": encoded})
    return Answer(200, body={"messages": matches}) if matches else Answer(204, "No messages.", VENDOR + "message-not-matches")


def _renew_session_lock(entity: Entity, values: dict[str, Any], now: float) -> Answer:
    try:
        return Answer(200, body={"expiration": milliseconds(entity.renew_session(values["session-id"], now))})
    except LockLostError:
        text = "The session lock has expired on the session. Accept a new session."
        return Answer(410, text, VENDOR + "session-lock-lost")


def _get_message_sessions(entity: Entity, values: dict[str, Any], _now: float) -> Answer:
    skip, top = int(values.get("skip") or 0), int(values.get("top") or MAX_SESSIONS)
    names = entity.session_names()[skip : skip + top]
    if not names:
        return Answer(204, "No sessions.", VENDOR + "session-not-matches")
    return Answer(200, body={"skip": int32(skip + len(names)), "sessions-ids": Array(UNDESCRIBED, Data.STRING, *names)})


OPERATIONS: Final[dict[str, Callable[[Entity, dict[str, Any], float], Answer]]] = {
    "renew-lock": _renew_lock,
    "update-disposition": _update_disposition,
    "peek-message": _peek_message,
    "renew-session-lock": _renew_session_lock,
    "get-message-sessions": _get_message_sessions,
}

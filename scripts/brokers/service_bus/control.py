"""Serve the control API for tests, HTTP with JSON on loopback. Names are quoted in paths; an unknown name is answered with 404.

- `PUT /queues/NAME` with lock_seconds, max_delivery_count, requires_session and max_message_bytes: create a queue, or change it.
- `PUT /topics/NAME` with max_message_bytes, and `PUT /topics/NAME/subscriptions/NAME` with the settings of a queue.
- `DELETE` of any of these: its links are detached with `amqp:not-found`.
- `GET /queues/NAME`: the numbers of messages by state, of completed ones, and of deliveries.
- `GET /queues/NAME/messages`: the stored messages, with `?dead_letter=1` those of the sub-queue, with properties and body.
- `POST /queues/NAME/messages` with a list of {body, id, session, properties}, the body in base 64: send messages. Also to topics.
- `POST /queues/NAME/detach` with condition and text: close the links of the queue with this error.
- `POST /disconnect`: close all connections.
- `PUT /faults` with management, receive ("busy", "silent" or null), unauthorized and count: let the next requests fail.

Subscriptions have the requests of queues, below `/topics/NAME/subscriptions/NAME`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from proton.reactor import ApplicationEvent  # type: ignore[import-not-found]

from .codec import body_of, build, properties_of
from .entities import MAX_MESSAGE_BYTES, Entity, Settings, Stored
from .faults import Faults
from .namespace import Topic

if TYPE_CHECKING:
    from .server import Broker

MAX_WAIT_SECONDS: Final = 60.0


class UnknownError(Exception):
    """There is no such entity or request."""


def serve(port: int, broker: Broker, injector: Any) -> None:
    """Serve requests in threads; each is carried out in the loop that the injector wakes."""

    class Handler(BaseHTTPRequestHandler):
        """Answers requests on connections that are kept."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            url = urlsplit(self.path)
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            status, answer = _in_loop(injector, lambda: _carry_out(broker, self.command, parts, query, body))
            encoded = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815  # the names are those of the server

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Thread(target=server.serve_forever, daemon=True).start()


def _in_loop(injector: Any, action: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    result = Future[tuple[int, Any]]()

    def run() -> None:
        try:
            result.set_result(action())
        except UnknownError as error:
            result.set_result((404, {"error": str(error)}))
        except (KeyError, TypeError, ValueError) as error:
            result.set_result((400, {"error": repr(error)}))

    injector.trigger(ApplicationEvent("control", subject=run))
    return result.result(MAX_WAIT_SECONDS)


def _carry_out(broker: Broker, method: str, parts: list[str], query: dict[str, str], body: Any) -> tuple[int, Any]:
    match method:
        case "GET":
            return 200, _get(broker, parts, query)
        case "POST":
            return 200, _post(broker, parts, body)
        case "PUT":
            _put(broker, parts, body or {})
        case _:
            _delete(broker, parts)
    return 200, {}


def _get(broker: Broker, parts: list[str], query: dict[str, str]) -> Any:
    if parts[-1] != "messages" or len(parts) % 2 == 0:
        return _entity(broker, parts).counts()
    entity = _entity(broker, parts[:-1])
    chosen = entity.dead_letters if query.get("dead_letter") == "1" else entity
    return [_describe(one) for one in chosen.browse(0, len(chosen.stored))] if chosen else []


def _post(broker: Broker, parts: list[str], body: Any) -> Any:
    match parts:
        case ["disconnect"]:
            return {"connections": broker.disconnect()}
        case [*path, "messages"]:
            messages = [build(b64decode(one.get("body", "")), one.get("id"), one.get("session"), one.get("properties")) for one in body]
            broker.add(_find(broker, path), messages)
            return {"messages": len(messages)}
        case [*path, "detach"]:
            return {"links": broker.detach(_find(broker, path), body["condition"], body.get("text", ""))}
    raise UnknownError("there is no such request")


def _put(broker: Broker, parts: list[str], body: dict[str, Any]) -> None:
    match parts:
        case ["faults"]:
            broker.faults = Faults(**body)
            broker.restore_credit()
        case ["queues", name]:
            broker.namespace.put_queue(name, Settings(**body))
        case ["topics", name]:
            broker.namespace.put_topic(name, body.get("max_message_bytes", MAX_MESSAGE_BYTES))
        case ["topics", topic, "subscriptions", name]:
            _find(broker, parts[:2])
            broker.namespace.put_subscription(topic, name, Settings(**body))
        case _:
            raise UnknownError("there is no such request")


def _find(broker: Broker, parts: list[str]) -> Entity | Topic:
    namespace = broker.namespace
    match parts:
        case ["queues", name] if name.lower() in namespace.queues:
            return namespace.queues[name.lower()]
        case ["topics", name] if name.lower() in namespace.topics:
            return namespace.topics[name.lower()]
        case ["topics", topic, "subscriptions", name]:
            entity = namespace.find(f"{topic}/subscriptions/{name}")
            if entity:
                return entity
    raise UnknownError(f"there is no {'/'.join(parts)}")


def _entity(broker: Broker, parts: list[str]) -> Entity:
    entity = _find(broker, parts)
    if isinstance(entity, Topic):
        raise UnknownError("a topic has no messages")
    return entity


def _delete(broker: Broker, parts: list[str]) -> None:
    entity = _find(broker, parts)
    match [part.lower() for part in parts]:
        case ["queues", name]:
            del broker.namespace.queues[name]
        case ["topics", name]:
            del broker.namespace.topics[name]
        case [_, topic, _, name]:
            del broker.namespace.topics[topic].subscriptions[name]
    broker.detach(entity, "amqp:not-found", f"The messaging entity 'sb://{broker.host}/{entity.name}' could not be found.")


def _describe(stored: Stored) -> dict[str, Any]:
    message = stored.message
    return {
        "sequence": stored.sequence,
        "id": None if message.message_id is None else str(message.message_id),
        "session": message.session_id,
        "delivery_count": stored.delivery_count,
        "locked": stored.lock is not None,
        "deferred": stored.is_deferred,
        "properties": {
            key: value if isinstance(value, str | int | float | bool | None) else str(value)
            for key, value in properties_of(message).items()
        },
        "body": b64encode(body_of(message)).decode(),
    }

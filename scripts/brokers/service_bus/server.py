"""Run a fake of Azure Service Bus: `python -m scripts.brokers.service_bus.server PORT CONTROL_PORT`, installed by `service-bus.sh`.

It has the protocol of the service, AMQP 1.0, on PORT without TLS, and the requests of `control.py` on CONTROL_PORT. All data is in memory.
One thread runs the loop of Proton and has the state; requests of the control API are carried out in it.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Final

from proton import Link, Message, ProtonException  # type: ignore[import-not-found]
from proton.reactor import Container, EventInjector  # type: ignore[import-not-found]

from . import control, management
from .codec import EncodingError, describe_dead, parse_batch
from .entities import Entity, SessionLockedError
from .faults import BUSY, BUSY_CONDITION, BUSY_TEXT, Faults
from .guard import Guarded
from .links import NOT_ALLOWED, NOT_FOUND, Accepting, Receiving, Requests, Sending, close, echo, error, reject, session_filter
from .namespace import Namespace, Topic
from .tokens import allows, path_of

CREDIT: Final = 1_000
TICK_SECONDS: Final = 0.05
DEFAULT_ACCEPT_SECONDS: Final = 60.0
MANAGEMENT, TOKENS = "/$management", "$cbs"


class Broker:
    """Handles the events of all connections. Each link has a role, and each connection the paths that its tokens allow."""

    def __init__(self, port: int, control_port: int) -> None:
        self.namespace = Namespace(describe_dead)
        self.faults = Faults()
        self.host = f"127.0.0.1:{port}"
        self._control_port = control_port
        self._connections = dict[Any, set[str]]()
        self._roles = dict[Any, Sending | Receiving | Requests | Accepting]()
        self._receivers = dict[Entity, dict[Receiving, None]]()
        self._accepting = dict[Entity, dict[Accepting, None]]()

    # --- Start and time ---

    def on_reactor_init(self, event: Any) -> None:
        """Listen on both ports."""
        event.container.listen(self.host)
        injector = EventInjector()
        event.container.selectable(injector)
        control.serve(self._control_port, self, injector)
        event.container.schedule(TICK_SECONDS, Guarded(self))

    def on_timer_task(self, event: Any) -> None:
        """End the locks and the waits that are due."""
        event.container.schedule(TICK_SECONDS, Guarded(self))
        now = time.time()
        for entity in list(self.namespace.entities()):
            self.expire(entity, now)
        for waiting in [one for group in self._accepting.values() for one in group if one.until <= now]:
            self._end_role(waiting.link)
            echo(waiting.link)
            close(waiting.link, "com.microsoft:timeout", "The operation did not complete within the allotted timeout.")

    def expire(self, entity: Entity, now: float) -> None:
        """End the locks of an entity that are due, and deliver what is available again."""
        expired = entity.expire(now)
        for holder in expired.holders:
            if isinstance(holder, Receiving):
                self._end_role(holder.link)
                close(holder.link, "com.microsoft:session-lock-lost", "The session lock has expired on the session. Accept a new session.")
        if expired.has_messages:
            self.deliver(entity)

    def on_control(self, event: Any) -> None:
        """Carry out a request of the control API."""
        event.subject()

    # --- Connections ---

    def on_connection_remote_open(self, event: Any) -> None:
        """Open a connection."""
        self._connections[event.connection] = set()
        event.connection.container = "service-bus"
        event.connection.open()

    def on_connection_remote_close(self, event: Any) -> None:
        """Close a connection with its links."""
        self._drop_connection(event.connection)
        event.connection.close()

    def on_transport_tail_closed(self, event: Any) -> None:
        """Drop a connection that was cut."""
        self.on_transport_closed(event)

    def on_transport_closed(self, event: Any) -> None:
        """Drop a connection that has ended."""
        if event.connection is not None:
            self._drop_connection(event.connection)

    def _drop_connection(self, connection: Any) -> None:
        if self._connections.pop(connection, None) is None:
            return
        for link in [link for link in self._roles if link.connection == connection]:
            self._end_role(link)

    def on_session_remote_open(self, event: Any) -> None:
        """Open a session of AMQP."""
        event.session.open()

    def on_session_remote_close(self, event: Any) -> None:
        """Close a session of AMQP with its links."""
        for link in [link for link in self._roles if link.session == event.session]:
            self._end_role(link)
        event.session.close()

    def disconnect(self) -> int:
        """Close all connections, and return their number."""
        connections = list(self._connections)
        for connection in connections:
            self._drop_connection(connection)
            connection.condition = error("amqp:connection:forced", "The connection was closed by the service.")
            connection.close()
        return len(connections)

    # --- Links ---

    def on_link_remote_open(self, event: Any) -> None:
        """Attach a link to the node that it names, or refuse it."""
        link = event.link
        address = (link.remote_target if link.is_receiver else link.remote_source).address or ""
        path = path_of(address)
        if path == TOKENS:
            self._open_requests(link, path, None)
            return
        entity_path = path.removesuffix(MANAGEMENT)
        entity = self.namespace.find(entity_path)
        if not allows(self._connections.get(link.connection, set()), path):
            text = f"Unauthorized access. 'Listen' or 'Send' claim(s) are required to perform this operation. Resource: 'sb://{self.host}/{path}'."
            echo(link)
            close(link, "amqp:unauthorized-access", text)
        elif entity is None:
            echo(link)
            close(link, NOT_FOUND, f"The messaging entity 'sb://{self.host}/{path}' could not be found.")
        elif entity_path != path:
            self._open_requests(link, path, entity)
        elif link.is_receiver:
            self._open_sending(link, entity)
        else:
            self._open_receiving(link, entity)

    def _open_requests(self, link: Any, path: str, entity: Entity | Topic | None) -> None:
        role = Requests(link, path, entity)
        self._roles[link] = role
        echo(link)
        if link.is_receiver:
            link.flow(CREDIT)

    def _open_sending(self, link: Any, entity: Entity | Topic) -> None:
        if isinstance(entity, Entity) and (entity.dead_letters is None or "/" in entity.name):
            echo(link)
            close(link, NOT_ALLOWED, f"Messages cannot be sent to '{entity.name}'.")
            return
        self._roles[link] = Sending(link, entity)
        link.max_message_size = entity.max_message_bytes
        echo(link)
        link.flow(CREDIT)

    def _open_receiving(self, link: Any, entity: Entity | Topic) -> None:
        fault = self.faults.on_receive()
        has_filter, name = session_filter(link)
        if fault:
            if fault == BUSY:
                echo(link)
                close(link, BUSY_CONDITION, BUSY_TEXT)
        elif isinstance(entity, Topic) or has_filter != entity.settings.requires_session:
            echo(link)
            close(
                link, NOT_ALLOWED, f"It is not possible to receive from '{entity.name}': only an entity with sessions has such receivers."
            )
        elif not has_filter:
            self._start(link, Receiving(link, entity, None))
            echo(link)
        elif name is None:
            timeout = (link.remote_properties or {}).get("com.microsoft:timeout")
            until = time.time() + (DEFAULT_ACCEPT_SECONDS if timeout is None else timeout / 1_000)
            waiting = self._roles[link] = Accepting(link, entity, until)
            self._accepting.setdefault(entity, {})[waiting] = None
            self._accept_sessions(entity)
        else:
            self._accept_named(link, entity, name)

    def _accept_named(self, link: Any, entity: Entity, name: str) -> None:
        role = Receiving(link, entity, None)
        self.expire(entity, time.time())
        try:
            role.session = entity.accept(name, role, time.time())
        except SessionLockedError:
            echo(link)
            text = f"The requested session '{name}' cannot be accepted. It may be locked by another receiver."
            close(link, "com.microsoft:session-cannot-be-locked", text)
            return
        self._start(link, role)
        echo(link, role.session)

    def _accept_sessions(self, entity: Entity) -> None:
        """Give the available sessions to the waiting receivers, in the order of their arrival."""
        waiting = self._accepting.get(entity, {})
        while waiting and entity.has_ready_session:
            first = next(iter(waiting))
            role = Receiving(first.link, entity, None)
            role.session = entity.accept(None, role, time.time())
            if role.session is None:
                return
            del waiting[first]
            self._start(first.link, role)
            echo(first.link, role.session)
            self._deliver_to(role, time.time())

    def _start(self, link: Any, role: Receiving) -> None:
        self._roles[link] = role
        self._receivers.setdefault(role.entity, {})[role] = None

    def on_link_remote_close(self, event: Any) -> None:
        """Close a link."""
        self._end_role(event.link)
        if not event.link.state & Link.LOCAL_CLOSED:
            event.link.close()

    def on_link_remote_detach(self, event: Any) -> None:
        """Detach a link."""
        self._end_role(event.link)
        event.link.detach()

    def _end_role(self, link: Any) -> None:
        """End the role of a link. The lock of a session ends with it, but not those of other messages."""
        role = self._roles.pop(link, None)
        if isinstance(role, Accepting):
            self._accepting.get(role.entity, {}).pop(role, None)
        elif isinstance(role, Receiving):
            self._receivers.get(role.entity, {}).pop(role, None)
            if role.session and role.session.holder is role:
                role.entity.end_session(role.session, counts=False)
                self._accept_sessions(role.entity)

    def detach(self, entity: Entity | Topic, condition: str, text: str) -> int:
        """Close the links of an entity and its sub-queue with an error, and return their number."""
        ended = entity.parts()
        links = [link for link, role in self._roles.items() if any(role.entity is one for one in ended)]
        for link in links:
            if isinstance(self._roles[link], Accepting):
                echo(link)
            self._end_role(link)
            close(link, condition, text)
        return len(links)

    # --- Messages of clients ---

    def on_delivery(self, event: Any) -> None:
        """Take a message, or the settlement of one."""
        delivery, role = event.delivery, self._roles.get(event.link)
        if event.link.is_sender:
            if delivery.updated and isinstance(role, Receiving):
                if role.settle(delivery, time.time()):
                    self.deliver(role.entity)
            elif delivery.settled:
                delivery.settle()
            return
        if not delivery.readable or delivery.partial:
            return
        encoded = bytes(event.link.recv(delivery.pending) or b"")
        event.link.advance()
        if event.link.credit < CREDIT // 2:
            event.link.flow(CREDIT - event.link.credit)
        if isinstance(role, Sending):
            self._store(role, delivery, encoded)
        elif isinstance(role, Requests):
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
            self._answer(role, encoded)

    def _store(self, role: Sending, delivery: Any, encoded: bytes) -> None:
        entity = role.entity
        limit = entity.max_message_bytes
        if len(encoded) > limit:
            reject(delivery, "amqp:link:message-size-exceeded", f"The message has {len(encoded)} bytes, at most {limit} are allowed.")
            return
        try:
            messages = parse_batch(encoded)
        except (EncodingError, ProtonException, ValueError) as cause:
            reject(delivery, "amqp:decode-error", f"The message cannot be read: {cause}.")
            return
        if isinstance(entity, Entity) and entity.settings.requires_session and any(one.session_id is None for one in messages):
            reject(
                delivery, NOT_ALLOWED, "The SessionId was not set on a message, and it cannot be sent to the entity, which has sessions."
            )
            return
        self.add(entity, messages)
        delivery.update(delivery.ACCEPTED)
        delivery.settle()

    def add(self, entity: Entity | Topic, messages: list[Any]) -> None:
        """Store messages in a queue, or in each subscription of a topic, and deliver them."""
        now = time.time()
        targets = [entity] if isinstance(entity, Entity) else list(entity.subscriptions.values())
        for target in targets:
            for message in messages:
                target.add(message, now)
            self.deliver(target)

    def _answer(self, role: Requests, encoded: bytes) -> None:
        request = Message()
        request.decode(encoded)
        answer: management.Answer | None
        if role.path == TOKENS:
            answer = management.answer_token(request, self.faults, self._connections[role.link.connection])
        else:
            answer = self._answer_management(role, request)
        if answer is None:
            return
        for link, other in self._roles.items():
            if isinstance(other, Requests) and other.path == role.path and link.is_sender and link.session == role.link.session:
                reply = management.reply(request, answer, is_token=role.path == TOKENS)
                sent = link.send(reply)
                sent.settle()
                return

    def _answer_management(self, role: Requests, request: Any) -> management.Answer | None:
        fault = self.faults.on_management()
        if fault:
            return management.BUSY_ANSWER if fault == BUSY else None
        if not isinstance(role.entity, Entity):
            return management.Answer(501, "A topic has no such operation.", "amqp:not-implemented")
        now = time.time()
        self.expire(role.entity, now)
        answer = management.carry_out(role.entity, str((request.properties or {}).get("operation")), request.body, now)
        for receiver in self._receivers.get(role.entity, {}):
            for token in answer.ended:
                receiver.end(token)
        if answer.has_messages or answer.ended:
            self.deliver(role.entity)
        return answer

    # --- Deliveries to clients ---

    def on_link_flow(self, event: Any) -> None:
        """Deliver what a receiver has given credit for."""
        role = self._roles.get(event.link)
        if not isinstance(role, Receiving):
            return
        fault = self.faults.on_receive() if event.link.credit > 0 and not event.link.drain_mode else None
        role.is_silent = fault is not None and fault != BUSY
        if fault == BUSY:
            self._end_role(event.link)
            close(event.link, BUSY_CONDITION, BUSY_TEXT)
            return
        now = time.time()
        self.expire(role.entity, now)
        self._deliver_to(role, now)
        if event.link.drain_mode:
            event.link.drained()

    def deliver(self, entity: Entity) -> None:
        """Deliver the available messages of an entity to the waiting receivers: one at a time to each receiver in turn."""
        if (dead := entity.dead_letters) and dead.has_available:
            self.deliver(dead)
        if entity.settings.requires_session:
            self._accept_sessions(entity)
        now = time.time()
        receivers = [role for role in self._receivers.get(entity, {}) if role.credit > 0]
        if len(receivers) == 1 or entity.settings.requires_session:
            for role in receivers:
                self._deliver_to(role, now)
            return
        while receivers and entity.has_available:
            receivers = [role for role in receivers if role.credit > 0 and role.send(now)]

    def _deliver_to(self, role: Receiving, now: float) -> None:
        while role.credit > 0 and role.send(now):
            pass

    def restore_credit(self) -> None:
        """Deliver again to receivers whose credit was ignored."""
        for group in self._receivers.values():
            for role in group:
                role.is_silent = False
        for entity in list(self._receivers):
            self.deliver(entity)


def main() -> None:
    """Serve until the process ends."""
    logging.basicConfig(level=logging.WARNING)
    port, control_port = (int(argument) for argument in sys.argv[1:])
    Container(Guarded(Broker(port, control_port))).run()


if __name__ == "__main__":
    main()

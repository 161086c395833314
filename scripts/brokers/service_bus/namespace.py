"""The queues and topics of a namespace. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .entities import MAX_MESSAGE_BYTES, Entity, Message, Settings


@dataclass(slots=True)
class Topic:
    """A topic with its subscriptions by their names in small letters."""

    name: str
    max_message_bytes: int = MAX_MESSAGE_BYTES
    subscriptions: dict[str, Entity] = field(default_factory=dict)

    def parts(self) -> list[Entity | Topic]:
        """Return it, its subscriptions and their sub-queues."""
        return [self, *(part for one in self.subscriptions.values() for part in one.parts())]


class Namespace:
    """The queues and topics, by their names in small letters."""

    def __init__(self, describe_dead: Callable[[Message, str, str], Message]) -> None:
        self.queues: dict[str, Entity] = {}
        self.topics: dict[str, Topic] = {}
        self._describe_dead = describe_dead

    def find(self, path: str) -> Entity | Topic | None:
        """Return what a path of a queue, a topic, a subscription or one of their sub-queues names. Capitals do not matter."""
        *parts, last = path.lower().split("/")
        if last == "$deadletterqueue":
            entity = self.find("/".join(parts))
            return entity.dead_letters if isinstance(entity, Entity) else None
        match [*parts, last]:
            case [name]:
                return self.queues.get(name) or self.topics.get(name)
            case [name, "subscriptions", subscription] if name in self.topics:
                return self.topics[name].subscriptions.get(subscription)
        return None

    def put_queue(self, name: str, settings: Settings) -> None:
        """Create a queue, or change the settings of one."""
        _put(self.queues, name, name, settings, self._describe_dead)

    def put_subscription(self, topic: str, name: str, settings: Settings) -> None:
        """Create a subscription, or change the settings of one. Raise `KeyError` if there is no such topic."""
        _put(self.topics[topic.lower()].subscriptions, name, f"{topic}/Subscriptions/{name}", settings, self._describe_dead)

    def put_topic(self, name: str, max_message_bytes: int) -> None:
        """Create a topic, or change its setting."""
        self.topics.setdefault(name.lower(), Topic(name)).max_message_bytes = max_message_bytes

    def entities(self) -> Iterator[Entity]:
        """Yield all queues, subscriptions and sub-queues."""
        for entity in [*self.queues.values(), *(entity for topic in self.topics.values() for entity in topic.subscriptions.values())]:
            yield entity
            if entity.dead_letters:
                yield entity.dead_letters


def _put(
    entities: dict[str, Entity], name: str, path: str, settings: Settings, describe_dead: Callable[[Message, str, str], Message]
) -> None:
    entity = entities.get(name.lower())
    if entity is None:
        entities[name.lower()] = Entity(path, settings, describe_dead)
        return
    entity.settings = settings
    if entity.dead_letters:
        entity.dead_letters.settings = Settings(settings.lock_seconds, None, False, settings.max_message_bytes)

"""The public names of Headrace. Each is imported when it is first used."""

from headrace.causal.event import CausalEvent as CausalEvent
from headrace.causal.ordering import CausalOrdering as CausalOrdering
from headrace.causal.ordering import claimed_event as claimed_event
from headrace.core.batching import Debounce as Debounce
from headrace.core.batching import Window as Window
from headrace.core.connection import Connection as Connection
from headrace.core.ledger.outcome import AdvanceItem as AdvanceItem
from headrace.core.ledger.outcome import AdvanceOutcome as AdvanceOutcome
from headrace.core.ordering.delivery import DeliveryPolicy as DeliveryPolicy
from headrace.errors import EventAlreadySeen as EventAlreadySeen
from headrace.errors import EventArrivedEarly as EventArrivedEarly
from headrace.project import Project as Project
from headrace.project import load_project as load_project
from headrace.sources.directory.upstream import Directory as Directory
from headrace.sources.http.upstream import Http as Http
from headrace.sources.kafka.upstream import Kafka as Kafka
from headrace.sources.memory.upstream import Memory as Memory
from headrace.sources.nats.upstream import Nats as Nats
from headrace.sources.objects.upstream import ObjectStore as ObjectStore
from headrace.sources.postgres.upstream import Postgres as Postgres
from headrace.sources.queue.upstream import Queue as Queue
from headrace.sources.queue.writer import QueueWriter as QueueWriter
from headrace.sources.rabbitmq.upstream import RabbitMQ as RabbitMQ
from headrace.sources.redis.upstream import RedisStreams as RedisStreams
from headrace.sources.sqs.upstream import SQS as SQS
from headrace.streams.manager import SharedStreamManager as SharedStreamManager
from headrace.tasks.deferral import TaskDeferred as TaskDeferred
from headrace.tasks.deferral import TaskSkipped as TaskSkipped
from headrace.tasks.log_event import LogEvent as LogEvent
from headrace.tasks.run import Run as Run
from headrace.tasks.task import Task as Task
from headrace.triggers.base import BaseEventTrigger as BaseEventTrigger
from headrace.triggers.base import BaseTrigger as BaseTrigger
from headrace.triggers.builtin.file import FileTrigger as FileTrigger
from headrace.triggers.builtin.http_status import HttpStatusTrigger as HttpStatusTrigger
from headrace.triggers.builtin.time import DateTimeTrigger as DateTimeTrigger
from headrace.triggers.builtin.time import TimeDeltaTrigger as TimeDeltaTrigger
from headrace.triggers.event import SKIP as SKIP
from headrace.triggers.event import Reject as Reject
from headrace.triggers.event import RunFailed as RunFailed
from headrace.triggers.event import RunSkipped as RunSkipped
from headrace.triggers.event import RunSucceeded as RunSucceeded
from headrace.triggers.event import TriggerEvent as TriggerEvent
from headrace.triggers.event import reject_shared_stream_event as reject_shared_stream_event
from headrace.triggers.installed_upstreams import make_upstream as make_upstream
from headrace.triggers.raw_event import RawEvent as RawEvent
from headrace.triggers.secrets import aget_connection as aget_connection
from headrace.triggers.secrets import aget_variable as aget_variable
from headrace.triggers.secrets import get_connection as get_connection
from headrace.triggers.secrets import get_variable as get_variable
from headrace.triggers.upstream import SharedStreamProducer as SharedStreamProducer
from headrace.triggers.upstream import Upstream as Upstream
from headrace.triggers.watch import WatchTrigger as WatchTrigger

__all__: list[str]
__version__: str

"""Millstream: an event-streaming platform in Python.

connect() creates a blocking Client, and connect_async() an AsyncClient for asyncio. A client creates everything else:

    client.producer()      Producer      writes messages
    client.consumer()      Consumer      reads topics, alone or as a member of a group
    client.subscription()  Subscription  brokers push the messages
    client.iterators()     Iterators     a group that commits batches of messages
    client.admin           Admin         settings, partitions, sizes, the cluster
    client.groups          Groups        members and committed offsets of groups

Messages are read as Message, and errors are raised as MillstreamError or a subclass, such as UnreachableError. Each
class has an asyncio variant, such as AsyncConsumer. Types of arguments are Time, Moment, Size, StartPosition and
Values. dir() lists all names. They are imported on first use, so that `import millstream` stays fast.
"""

TYPE_CHECKING = False  # Which tools that read types take for true; `typing` itself would cost more than all of this.
if TYPE_CHECKING:
    from millstream.model.broker_endpoint import BrokerEndpoint as BrokerEndpoint
    from millstream.model.errors import ClosedError as ClosedError
    from millstream.model.errors import ErrorCode as ErrorCode
    from millstream.model.errors import InvalidArgumentError as InvalidArgumentError
    from millstream.model.errors import MillstreamError as MillstreamError
    from millstream.model.errors import NotAuthorizedError as NotAuthorizedError
    from millstream.model.errors import RequestTimeoutError as RequestTimeoutError
    from millstream.model.errors import StorageError as StorageError
    from millstream.model.errors import UnknownGroupError as UnknownGroupError
    from millstream.model.errors import UnknownTopicError as UnknownTopicError
    from millstream.model.errors import UnreachableError as UnreachableError
    from millstream.model.errors import UnreadableError as UnreadableError
    from millstream.model.names import TopicPartition as TopicPartition
    from millstream.model.services import Service as Service
    from millstream.records.message import Message as Message
    from millstream.sdk.admin.admin_results import ClusterDescription as ClusterDescription
    from millstream.sdk.admin.admin_results import ConfigSetting as ConfigSetting
    from millstream.sdk.admin.admin_results import LogDirectory as LogDirectory
    from millstream.sdk.admin.admin_results import QueryResult as QueryResult
    from millstream.sdk.admin.admin_results import ResourceKind as ResourceKind
    from millstream.sdk.admin.admin_results import TopicPage as TopicPage
    from millstream.sdk.admin.group_results import CommittedOffset as CommittedOffset
    from millstream.sdk.admin.group_results import GroupDescription as GroupDescription
    from millstream.sdk.admin.group_results import GroupLag as GroupLag
    from millstream.sdk.admin.group_results import GroupListing as GroupListing
    from millstream.sdk.admin.group_results import GroupMember as GroupMember
    from millstream.sdk.admin.service_map import Backup as Backup
    from millstream.sdk.admin.service_map import BackupMap as BackupMap
    from millstream.sdk.admin.service_map import Follower as Follower
    from millstream.sdk.admin.service_map import Leader as Leader
    from millstream.sdk.admin.service_map import ServiceMap as ServiceMap
    from millstream.sdk.admin.topic_sizes import OffsetRange as OffsetRange
    from millstream.sdk.admin.topic_sizes import PartitionSize as PartitionSize
    from millstream.sdk.admin.topic_sizes import TopicSize as TopicSize
    from millstream.sdk.aio.admin import AsyncAdmin as AsyncAdmin
    from millstream.sdk.aio.client import AsyncClient as AsyncClient
    from millstream.sdk.aio.client import connect_async as connect_async
    from millstream.sdk.aio.consumer import AsyncConsumer as AsyncConsumer
    from millstream.sdk.aio.groups import AsyncGroups as AsyncGroups
    from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls as AsyncIteratorCalls
    from millstream.sdk.aio.iterators import AsyncIterators as AsyncIterators
    from millstream.sdk.aio.numbered_writer import AsyncNumberedWriter as AsyncNumberedWriter
    from millstream.sdk.aio.producer import AsyncProducer as AsyncProducer
    from millstream.sdk.aio.subscription import AsyncSubscription as AsyncSubscription
    from millstream.sdk.arguments import Size as Size
    from millstream.sdk.cluster_queries import DriftInfo as DriftInfo
    from millstream.sdk.connection.address import Address as Address
    from millstream.sdk.connection.clock_drift import ClockDrift as ClockDrift
    from millstream.sdk.connection.outage import ConnectionHealth as ConnectionHealth
    from millstream.sdk.consuming.bad_values import OnBadValue as OnBadValue
    from millstream.sdk.consuming.decoding import UndecodableError as UndecodableError
    from millstream.sdk.consuming.health import ConsumerActivity as ConsumerActivity
    from millstream.sdk.consuming.health import Health as Health
    from millstream.sdk.consuming.message_batch import MessageBatch as MessageBatch
    from millstream.sdk.consuming.options import ConsumerOptions as ConsumerOptions
    from millstream.sdk.consuming.options import OnChange as OnChange
    from millstream.sdk.consuming.start_positions import StartPosition as StartPosition
    from millstream.sdk.iterating.options import IteratorOptions as IteratorOptions
    from millstream.sdk.iterating.requests import GroupIterator as GroupIterator
    from millstream.sdk.iterating.requests import IteratorBatch as IteratorBatch
    from millstream.sdk.iterating.requests import IteratorCommit as IteratorCommit
    from millstream.sdk.iterating.requests import IteratorMembership as IteratorMembership
    from millstream.sdk.iterating.requests import ListedIterator as ListedIterator
    from millstream.sdk.metrics import Metrics as Metrics
    from millstream.sdk.producing.bulk import PutResults as PutResults
    from millstream.sdk.producing.bulk import Receipts as Receipts
    from millstream.sdk.producing.chunk import PutResult as PutResult
    from millstream.sdk.producing.chunk import Receipt as Receipt
    from millstream.sdk.producing.encoding import UnencodableError as UnencodableError
    from millstream.sdk.producing.failures import OutcomeUnknownError as OutcomeUnknownError
    from millstream.sdk.producing.failures import UnstoredError as UnstoredError
    from millstream.sdk.producing.options import ProducerOptions as ProducerOptions
    from millstream.sdk.responses import Broker as Broker
    from millstream.sdk.responses import BrokerInfo as BrokerInfo
    from millstream.sdk.responses import ClusterView as ClusterView
    from millstream.sdk.responses import ListedOffset as ListedOffset
    from millstream.sdk.responses import PartitionView as PartitionView
    from millstream.sdk.responses import TopicView as TopicView
    from millstream.sdk.subscribing.options import SubscriptionOptions as SubscriptionOptions
    from millstream.sdk.sync.admin import Admin as Admin
    from millstream.sdk.sync.client import Client as Client
    from millstream.sdk.sync.client import connect as connect
    from millstream.sdk.sync.consumer import Consumer as Consumer
    from millstream.sdk.sync.groups import Groups as Groups
    from millstream.sdk.sync.iterator_calls import IteratorCalls as IteratorCalls
    from millstream.sdk.sync.iterators import Iterators as Iterators
    from millstream.sdk.sync.numbered_writer import NumberedWriter as NumberedWriter
    from millstream.sdk.sync.producer import Producer as Producer
    from millstream.sdk.sync.subscription import Subscription as Subscription
    from millstream.sdk.time_arguments import Moment as Moment
    from millstream.sdk.time_arguments import Time as Time
    from millstream.sdk.value_formats import Values as Values
    from millstream.sdk.watching.read_positions import Position as Position
    from millstream.sdk.watching.read_result import ReadResult as ReadResult

__version__ = "0.1.0"

_HOMES = {
    "Address": "millstream.sdk.connection.address",
    "Admin": "millstream.sdk.sync.admin",
    "AsyncAdmin": "millstream.sdk.aio.admin",
    "AsyncClient": "millstream.sdk.aio.client",
    "AsyncConsumer": "millstream.sdk.aio.consumer",
    "AsyncGroups": "millstream.sdk.aio.groups",
    "AsyncIteratorCalls": "millstream.sdk.aio.iterator_calls",
    "AsyncIterators": "millstream.sdk.aio.iterators",
    "AsyncNumberedWriter": "millstream.sdk.aio.numbered_writer",
    "AsyncProducer": "millstream.sdk.aio.producer",
    "AsyncSubscription": "millstream.sdk.aio.subscription",
    "Backup": "millstream.sdk.admin.service_map",
    "BackupMap": "millstream.sdk.admin.service_map",
    "Broker": "millstream.sdk.responses",
    "BrokerEndpoint": "millstream.model.broker_endpoint",
    "BrokerInfo": "millstream.sdk.responses",
    "Client": "millstream.sdk.sync.client",
    "ClockDrift": "millstream.sdk.connection.clock_drift",
    "ClosedError": "millstream.model.errors",
    "ClusterDescription": "millstream.sdk.admin.admin_results",
    "ClusterView": "millstream.sdk.responses",
    "CommittedOffset": "millstream.sdk.admin.group_results",
    "ConfigSetting": "millstream.sdk.admin.admin_results",
    "connect": "millstream.sdk.sync.client",
    "connect_async": "millstream.sdk.aio.client",
    "ConnectionHealth": "millstream.sdk.connection.outage",
    "Consumer": "millstream.sdk.sync.consumer",
    "ConsumerActivity": "millstream.sdk.consuming.health",
    "ConsumerOptions": "millstream.sdk.consuming.options",
    "DriftInfo": "millstream.sdk.cluster_queries",
    "ErrorCode": "millstream.model.errors",
    "Follower": "millstream.sdk.admin.service_map",
    "GroupDescription": "millstream.sdk.admin.group_results",
    "GroupIterator": "millstream.sdk.iterating.requests",
    "GroupLag": "millstream.sdk.admin.group_results",
    "GroupListing": "millstream.sdk.admin.group_results",
    "GroupMember": "millstream.sdk.admin.group_results",
    "Groups": "millstream.sdk.sync.groups",
    "Health": "millstream.sdk.consuming.health",
    "StartPosition": "millstream.sdk.consuming.start_positions",
    "InvalidArgumentError": "millstream.model.errors",
    "IteratorBatch": "millstream.sdk.iterating.requests",
    "IteratorCalls": "millstream.sdk.sync.iterator_calls",
    "IteratorCommit": "millstream.sdk.iterating.requests",
    "IteratorMembership": "millstream.sdk.iterating.requests",
    "IteratorOptions": "millstream.sdk.iterating.options",
    "Iterators": "millstream.sdk.sync.iterators",
    "Leader": "millstream.sdk.admin.service_map",
    "ListedIterator": "millstream.sdk.iterating.requests",
    "ListedOffset": "millstream.sdk.responses",
    "LogDirectory": "millstream.sdk.admin.admin_results",
    "Message": "millstream.records.message",
    "MessageBatch": "millstream.sdk.consuming.message_batch",
    "Metrics": "millstream.sdk.metrics",
    "MillstreamError": "millstream.model.errors",
    "Moment": "millstream.sdk.time_arguments",
    "NotAuthorizedError": "millstream.model.errors",
    "NumberedWriter": "millstream.sdk.sync.numbered_writer",
    "OffsetRange": "millstream.sdk.admin.topic_sizes",
    "OnBadValue": "millstream.sdk.consuming.bad_values",
    "OnChange": "millstream.sdk.consuming.options",
    "OutcomeUnknownError": "millstream.sdk.producing.failures",
    "PartitionSize": "millstream.sdk.admin.topic_sizes",
    "PartitionView": "millstream.sdk.responses",
    "Position": "millstream.sdk.watching.read_positions",
    "Producer": "millstream.sdk.sync.producer",
    "ProducerOptions": "millstream.sdk.producing.options",
    "PutResult": "millstream.sdk.producing.chunk",
    "PutResults": "millstream.sdk.producing.bulk",
    "QueryResult": "millstream.sdk.admin.admin_results",
    "ReadResult": "millstream.sdk.watching.read_result",
    "Receipt": "millstream.sdk.producing.chunk",
    "Receipts": "millstream.sdk.producing.bulk",
    "RequestTimeoutError": "millstream.model.errors",
    "ResourceKind": "millstream.sdk.admin.admin_results",
    "Service": "millstream.model.services",
    "ServiceMap": "millstream.sdk.admin.service_map",
    "Size": "millstream.sdk.arguments",
    "StorageError": "millstream.model.errors",
    "Subscription": "millstream.sdk.sync.subscription",
    "SubscriptionOptions": "millstream.sdk.subscribing.options",
    "Time": "millstream.sdk.time_arguments",
    "TopicPage": "millstream.sdk.admin.admin_results",
    "TopicPartition": "millstream.model.names",
    "TopicSize": "millstream.sdk.admin.topic_sizes",
    "TopicView": "millstream.sdk.responses",
    "UndecodableError": "millstream.sdk.consuming.decoding",
    "UnencodableError": "millstream.sdk.producing.encoding",
    "UnknownGroupError": "millstream.model.errors",
    "UnknownTopicError": "millstream.model.errors",
    "UnreachableError": "millstream.model.errors",
    "UnreadableError": "millstream.model.errors",
    "UnstoredError": "millstream.sdk.producing.failures",
    "Values": "millstream.sdk.value_formats",
}
"""Where each public name lives; the imports above say the same to tools that read types."""

__all__ = sorted(_HOMES)  # noqa: PLE0605 - `help()` shows these names, and `import *` imports them.


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

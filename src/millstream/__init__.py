"""Millstream: an event-streaming platform in Python.

`connect` gives a client that blocks, `connect_async` one for asyncio; everything else is made by these two. Names are
imported when they are first used, so that `import millstream` costs next to nothing.
"""

TYPE_CHECKING = False  # Which tools that read types take for true; `typing` itself would cost more than all of this.
if TYPE_CHECKING:
    from millstream.model.errors import ErrorCode as ErrorCode
    from millstream.model.errors import MillstreamError as MillstreamError
    from millstream.model.names import TopicPartition as TopicPartition
    from millstream.records.message import Message as Message
    from millstream.sdk.aio.client import AsyncClient as AsyncClient
    from millstream.sdk.aio.client import connect_async as connect_async
    from millstream.sdk.aio.consumer import AsyncConsumer as AsyncConsumer
    from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls as AsyncIteratorCalls
    from millstream.sdk.aio.iterators import AsyncIterators as AsyncIterators
    from millstream.sdk.aio.producer import AsyncProducer as AsyncProducer
    from millstream.sdk.aio.subscription import AsyncSubscription as AsyncSubscription
    from millstream.sdk.consuming.decoding import UndecodableError as UndecodableError
    from millstream.sdk.consuming.message_batch import MessageBatch as MessageBatch
    from millstream.sdk.iterating.requests import GroupIterator as GroupIterator
    from millstream.sdk.iterating.requests import IteratorBatch as IteratorBatch
    from millstream.sdk.metrics import Metrics as Metrics
    from millstream.sdk.producing.bulk import PutResults as PutResults
    from millstream.sdk.producing.bulk import Receipts as Receipts
    from millstream.sdk.producing.chunk import PutResult as PutResult
    from millstream.sdk.producing.chunk import Receipt as Receipt
    from millstream.sdk.producing.failures import OutcomeUnknownError as OutcomeUnknownError
    from millstream.sdk.producing.failures import UnstoredError as UnstoredError
    from millstream.sdk.sync.client import Client as Client
    from millstream.sdk.sync.client import connect as connect
    from millstream.sdk.sync.consumer import Consumer as Consumer
    from millstream.sdk.sync.iterator_calls import IteratorCalls as IteratorCalls
    from millstream.sdk.sync.iterators import Iterators as Iterators
    from millstream.sdk.sync.producer import Producer as Producer
    from millstream.sdk.sync.subscription import Subscription as Subscription
    from millstream.sdk.watching.read_result import ReadResult as ReadResult

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "millstream.sdk.aio.client",
    "AsyncConsumer": "millstream.sdk.aio.consumer",
    "AsyncIteratorCalls": "millstream.sdk.aio.iterator_calls",
    "AsyncIterators": "millstream.sdk.aio.iterators",
    "AsyncProducer": "millstream.sdk.aio.producer",
    "AsyncSubscription": "millstream.sdk.aio.subscription",
    "MessageBatch": "millstream.sdk.consuming.message_batch",
    "Client": "millstream.sdk.sync.client",
    "Consumer": "millstream.sdk.sync.consumer",
    "ErrorCode": "millstream.model.errors",
    "GroupIterator": "millstream.sdk.iterating.requests",
    "IteratorBatch": "millstream.sdk.iterating.requests",
    "IteratorCalls": "millstream.sdk.sync.iterator_calls",
    "Iterators": "millstream.sdk.sync.iterators",
    "Message": "millstream.records.message",
    "Metrics": "millstream.sdk.metrics",
    "OutcomeUnknownError": "millstream.sdk.producing.failures",
    "MillstreamError": "millstream.model.errors",
    "PutResult": "millstream.sdk.producing.chunk",
    "PutResults": "millstream.sdk.producing.bulk",
    "ReadResult": "millstream.sdk.watching.read_result",
    "Producer": "millstream.sdk.sync.producer",
    "Receipt": "millstream.sdk.producing.chunk",
    "Receipts": "millstream.sdk.producing.bulk",
    "Subscription": "millstream.sdk.sync.subscription",
    "TopicPartition": "millstream.model.names",
    "UndecodableError": "millstream.sdk.consuming.decoding",
    "UnstoredError": "millstream.sdk.producing.failures",
    "connect": "millstream.sdk.sync.client",
    "connect_async": "millstream.sdk.aio.client",
}
"""Where each public name lives; the imports above say the same to tools that read types."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

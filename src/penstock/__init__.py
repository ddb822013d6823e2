"""Penstock: an event-streaming platform in Python.

`connect` gives a client that blocks, `connect_async` one for asyncio; everything else is made by these two. Names are
imported when they are first used, so that `import penstock` costs next to nothing.
"""

TYPE_CHECKING = False  # Which tools that read types take for true; `typing` itself would cost more than all of this.
if TYPE_CHECKING:
    from penstock.model.errors import ErrorCode as ErrorCode
    from penstock.model.errors import PenstockError as PenstockError
    from penstock.model.names import TopicPartition as TopicPartition
    from penstock.records.message import Message as Message
    from penstock.sdk.aio.calls import AsyncIteratorCalls as AsyncIteratorCalls
    from penstock.sdk.aio.client import AsyncClient as AsyncClient
    from penstock.sdk.aio.client import connect_async as connect_async
    from penstock.sdk.aio.consumer import AsyncConsumer as AsyncConsumer
    from penstock.sdk.aio.iterators import AsyncIterators as AsyncIterators
    from penstock.sdk.aio.producer import AsyncProducer as AsyncProducer
    from penstock.sdk.aio.subscription import AsyncSubscription as AsyncSubscription
    from penstock.sdk.consuming.batch import Batch as Batch
    from penstock.sdk.consuming.decoding import UndecodableError as UndecodableError
    from penstock.sdk.iterating.requests import GroupIterator as GroupIterator
    from penstock.sdk.iterating.requests import IteratorBatch as IteratorBatch
    from penstock.sdk.metrics import Metrics as Metrics
    from penstock.sdk.producing._chunk import Place as Place
    from penstock.sdk.producing._chunk import Receipt as Receipt
    from penstock.sdk.producing.failures import OutcomeUnknownError as OutcomeUnknownError
    from penstock.sdk.producing.failures import UnstoredError as UnstoredError
    from penstock.sdk.producing.lots import Places as Places
    from penstock.sdk.producing.lots import Receipts as Receipts
    from penstock.sdk.sync.calls import IteratorCalls as IteratorCalls
    from penstock.sdk.sync.client import Client as Client
    from penstock.sdk.sync.client import connect as connect
    from penstock.sdk.sync.consumer import Consumer as Consumer
    from penstock.sdk.sync.iterators import Iterators as Iterators
    from penstock.sdk.sync.producer import Producer as Producer
    from penstock.sdk.sync.subscription import Subscription as Subscription
    from penstock.sdk.watching.portion import Portion as Portion

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "penstock.sdk.aio.client",
    "AsyncConsumer": "penstock.sdk.aio.consumer",
    "AsyncIteratorCalls": "penstock.sdk.aio.calls",
    "AsyncIterators": "penstock.sdk.aio.iterators",
    "AsyncProducer": "penstock.sdk.aio.producer",
    "AsyncSubscription": "penstock.sdk.aio.subscription",
    "Batch": "penstock.sdk.consuming.batch",
    "Client": "penstock.sdk.sync.client",
    "Consumer": "penstock.sdk.sync.consumer",
    "ErrorCode": "penstock.model.errors",
    "GroupIterator": "penstock.sdk.iterating.requests",
    "IteratorBatch": "penstock.sdk.iterating.requests",
    "IteratorCalls": "penstock.sdk.sync.calls",
    "Iterators": "penstock.sdk.sync.iterators",
    "Message": "penstock.records.message",
    "Metrics": "penstock.sdk.metrics",
    "OutcomeUnknownError": "penstock.sdk.producing.failures",
    "PenstockError": "penstock.model.errors",
    "Place": "penstock.sdk.producing._chunk",
    "Places": "penstock.sdk.producing.lots",
    "Portion": "penstock.sdk.watching.portion",
    "Producer": "penstock.sdk.sync.producer",
    "Receipt": "penstock.sdk.producing._chunk",
    "Receipts": "penstock.sdk.producing.lots",
    "Subscription": "penstock.sdk.sync.subscription",
    "TopicPartition": "penstock.model.names",
    "UndecodableError": "penstock.sdk.consuming.decoding",
    "UnstoredError": "penstock.sdk.producing.failures",
    "connect": "penstock.sdk.sync.client",
    "connect_async": "penstock.sdk.aio.client",
}
"""Where each public name lives; the imports above say the same to tools that read types."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

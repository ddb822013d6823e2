"""Implements receipts: waiting in threads and on event loops, callbacks, and message ids.

The objects for waiting are created only when a caller waits. A waiter is called on the producer's event loop whenever a
batch of its chunk is settled; it then checks whether its own condition holds.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.message_id import MadeId
from millstream.sdk.arguments import check_callback
from millstream.sdk.producing.chunk import ProducerBatch, ProducerChunk, Receipt
from millstream.sdk.producing.row_partitioning import partition_for
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.clock import Clock
from millstream.seams.entropy import Entropy

log = logging.getLogger("millstream.sdk.producer")

_RANDOM_ID_BYTES = 16
_USED_KEPT = 4
_USED_BYTES_MIN = 64 * 1024

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OnDone = Callable[[Receipt], object]


class ReceiptWaiters:
    """Holds the waiters of one producer. `hurry` is called, from any thread, for a chunk that a caller waits for."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, entropy: Entropy, hurry: Callable[[ProducerChunk], object]
    ) -> None:
        self.lock = threading.RLock()
        self._process = os.getpid()
        self._loop = loop
        self._clock = clock
        self._times = Times(clock)
        self._entropy = entropy
        self._hurry = hurry
        self._used: list[bytearray] = []

    def used_buffer(self) -> bytearray | None:
        """Return the buffer of a stored batch for reuse, or None. Allocating memory costs as much as filling it."""
        try:
            return self._used.pop()
        except IndexError:
            return None

    # Waiting.

    def block(self, chunk: ProducerChunk, is_done: Callable[[], bool], timeout: Time | None) -> None:
        """Block this thread until `is_done` is true; raises TimeoutError after `timeout`."""
        self.refuse_to_block()
        self._block_until(chunk, is_done, self._end_s(timeout))

    def block_for_all(self, chunks: Iterable[ProducerChunk], timeout: Time | None) -> None:
        """Block this thread until all chunks are settled; raises TimeoutError after `timeout`."""
        self.refuse_to_block()
        end_s = self._end_s(timeout)
        for chunk in chunks:
            self._block_until(chunk, partial(getattr, chunk, "is_settled"), end_s)

    def _end_s(self, timeout: Time | None) -> float | None:
        return None if timeout is None else self._clock.monotonic_s() + self._times.span_s(timeout)

    def _block_until(self, chunk: ProducerChunk, is_done: Callable[[], bool], end_s: float | None) -> None:
        while True:
            event = threading.Event()
            if not self._register(chunk, is_done, event.set):
                return
            self._hurry(chunk)
            left_s = None if end_s is None else max(0.0, end_s - self._clock.monotonic_s())
            if not event.wait(left_s if left_s is None else min(left_s, threading.TIMEOUT_MAX)):
                self._forget(chunk, event.set)
                raise TimeoutError(f"messages to topic {chunk.topic!r} are still in flight")

    def refuse_to_block(self) -> None:
        """Raise CLIENT_MISUSED where blocking would deadlock: on the producer's event loop, and after a fork."""
        self._refuse_after_fork()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            text = "this would block the producer's own event loop; await the receipt instead"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)

    async def wait(self, chunk: ProducerChunk, is_done: Callable[[], bool]) -> None:
        """Wait on the running event loop, which need not be the producer's, until `is_done` is true."""
        self._refuse_after_fork()
        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()
            waiter = _waker(future, loop, loop is self._loop)
            if not self._register(chunk, is_done, waiter):
                return
            self._hurry(chunk)
            try:
                await future
            except BaseException:
                self._forget(chunk, waiter)
                raise

    def _refuse_after_fork(self) -> None:
        if os.getpid() != self._process:
            text = "this message was put before a fork; only the parent process knows its outcome"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)

    def _register(self, chunk: ProducerChunk, is_done: Callable[[], bool], waiter: Callable[[], object]) -> bool:
        """Register `waiter` for the next settled batch of the chunk; returns False if `is_done` is already true.

        Raises CLIENT_CLOSED if the producer's event loop has ended.
        """
        with self.lock:
            if is_done():
                return False
            if self._loop.is_closed():
                raise _ended()
            if chunk.waiters is None:
                chunk.waiters = []
            chunk.waiters.append(waiter)
            return True

    def _forget(self, chunk: ProducerChunk, waiter: Callable[[], object]) -> None:
        """Remove a waiter."""
        with self.lock:
            if chunk.waiters and waiter in chunk.waiters:
                chunk.waiters.remove(waiter)

    def call_when_settled(self, chunk: ProducerChunk, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop once the whole chunk is settled."""

        def look() -> None:
            if not self._register(chunk, lambda: chunk.is_settled, look):
                callback()

        if not self._register(chunk, lambda: chunk.is_settled, look):
            self.call_soon(callback)

    # Callbacks.

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call `callback` on the event loop, from any thread; raises CLIENT_CLOSED if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            raise _ended() from None

    def call_when_done(self, receipt: Receipt, callback: OnDone) -> None:
        check_callback("callback", callback)
        chunk, index = receipt.in_chunk()
        with self.lock:
            if not receipt.done():
                if chunk.callbacks is None:
                    chunk.callbacks = {}
                chunk.callbacks.setdefault(index, []).append(callback)
                return
        self.call_soon(call, callback, receipt)

    def settle(self, batch: ProducerBatch, error: MillstreamError | None) -> None:
        """Set the final outcome of a batch, on the event loop; wakes its waiters and runs its callbacks."""
        chunk: ProducerChunk = batch.chunk
        callbacks: list[tuple[int, list[OnDone]]] = []
        encoded, batch.encoded = batch.encoded, None
        if error is None and encoded is not None and len(self._used) < _USED_KEPT and len(encoded) >= _USED_BYTES_MIN:
            self._used.append(encoded)  # The broker has answered, so the transport no longer uses the buffer.
        with self.lock:
            batch.error = error
            batch.is_settled = True
            waiters, chunk.waiters = chunk.waiters, None
            if chunk.callbacks:
                callbacks = [(row, chunk.callbacks.pop(row)) for row in batch.places() if row in chunk.callbacks]
        if error is not None:
            batch.unseen = batch.count - len(callbacks)
        for waiter in waiters or ():
            waiter()
        for row, each in callbacks:
            receipt = Receipt(chunk, row)
            for callback in each:
                call(callback, receipt)

    # Ids.

    def message_id(self, chunk: ProducerChunk, index: int) -> bytes:
        """Return the id of a row: the caller's, one derived from its position in the batch, or a new random one."""
        with self.lock:
            batch, position = chunk.place_of(index)
            if batch is not None and batch.is_claimed and batch.base_sequence >= 0:
                batch.is_shown = True
                producer_id, epoch = batch.identity
                return MadeId(producer_id, epoch, batch.partition, batch.base_sequence, position).encode()
            return self.own_id(chunk, index)

    def own_id(self, chunk: ProducerChunk, index: int) -> bytes:
        """Return the row's own id; creates a random one if it has none. The caller holds the lock."""
        if chunk.ids is None:
            chunk.ids = [None] * chunk.count
        own: bytes | None = chunk.ids[index]
        if own is None:
            own = chunk.ids[index] = self._random_id(chunk, index)
        return own

    def _random_id(self, chunk: ProducerChunk, index: int) -> bytes:
        """Create a random id. If the id decides the partition of a retry, it hashes to the batch's partition."""
        batch, _ = chunk.place_of(index)
        while True:
            made = self._entropy.token(_RANDOM_ID_BYTES).hex().encode()
            if batch is None or chunk.is_routed(index) or not 0 <= batch.partition < chunk.partition_count:
                return made
            if partition_for(made, chunk.partition_count) == batch.partition:
                return made


def _waker(future: asyncio.Future[None], loop: asyncio.AbstractEventLoop, is_ours: bool) -> Callable[[], None]:
    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def wake_elsewhere() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # The waiter's loop is closed, so nothing waits there.
            pass

    return wake if is_ours else wake_elsewhere


def call(callback: Callable[[T], object], receipt: T) -> None:
    """Run a callback of the application; its exceptions are logged."""
    try:
        callback(receipt)
    except BaseException:  # Even SystemExit, which would stop the event loop that all callers share.
        log.exception("receipt callback failed")


def _ended() -> MillstreamError:
    text = "the producer's event loop has ended; its buffered messages were not sent or have an unknown outcome"
    return MillstreamError(ErrorCode.CLIENT_CLOSED, text)

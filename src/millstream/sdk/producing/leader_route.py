"""Sends batches to the leader of a partition, in the request that the broker supports."""

from collections.abc import Callable
from functools import partial

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk import requests
from millstream.sdk.connection.connection import BrokerConnection, ConnectionLostError
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.producing.batches import mark
from millstream.sdk.producing.chunk import ProducerBatch
from millstream.sdk.producing.partition_queue import Answer, InFlightBatch
from millstream.sdk.producing.request_batching import RequestBatcher
from millstream.sdk.responses import Produced, ProducerIdentity
from millstream.wire.client_connection import ApiRequest


class LeaderRoute:
    """Sends the batches of one partition to its current leader."""

    def __init__(self, caller: RetryingCaller, where: TopicPartition, batcher: RequestBatcher) -> None:
        self._caller = caller
        self._batcher = batcher
        self._cluster = caller.cluster
        self._where = where
        self.supports_ids = True

    async def find(self, deadline: Deadline) -> BrokerConnection:
        topic, partition = self._where
        try:
            address = await self._cluster.leader(topic, partition, deadline, auto_create=True)
            return await self._cluster.to(address, deadline)
        except MillstreamError:
            self._cluster.forget(topic)
            raise

    @property
    def leader_epoch(self) -> int:
        return self._cluster.leader_epoch(self._where)

    async def send(self, connection: BrokerConnection, batch: ProducerBatch, deadline: Deadline) -> Produced:
        try:
            produced = await connection.request(self._request(connection, batch), self._cluster.timeout_s(deadline))
        except MillstreamError as error:
            self._cluster.leader_failed(self._where, connection.address, error)
            raise
        return produced if batch.chunk.options.acks else Produced(-1, -1, -1)

    def post(
        self, batch: ProducerBatch, same: BrokerConnection | None, when_room: Callable[[], None]
    ) -> InFlightBatch | None:
        connection = self._cluster.open_leader(*self._where)
        if connection is None or (same is not None and connection is not same):
            return None
        if connection.room is not None:
            connection.room.add_done_callback(lambda _: when_room())
            return None
        answer = self._answer(connection, batch)
        answer.add_done_callback(partial(self._note_failure, connection.address))
        return InFlightBatch(connection, answer)

    def _answer(self, connection: BrokerConnection, batch: ProducerBatch) -> Answer:
        deadline: Deadline = batch.chunk.deadline
        timeout_s, request = self._cluster.timeout_s(deadline), self._request(connection, batch)
        if not self.supports_ids:
            return connection.post(request, timeout_s)
        timeout_ms = self._cluster.broker_timeout_ms(deadline)
        return self._batcher.post(connection, self._where, batch.encoded, timeout_s, timeout_ms)

    def _note_failure(self, asked: str, answer: Answer) -> None:
        error = answer.exception() or answer.result()
        if isinstance(error, MillstreamError):
            self._cluster.leader_failed(self._where, asked, error)
        elif isinstance(error, BaseException):
            self._cluster.forget(self._where.topic)

    def _request(self, connection: BrokerConnection, batch: ProducerBatch) -> ApiRequest[Produced]:
        """Return a Puts request, which carries message ids, or Produce for brokers without Puts and message ids."""
        timeout_ms = self._cluster.broker_timeout_ms(batch.chunk.deadline)
        acks = batch.chunk.options.acks
        self.supports_ids = connection.serves(requests.PUTS)
        mark(batch, made_ids=self.supports_ids and batch.base_sequence >= 0)
        if self.supports_ids:
            return requests.puts(self._where, batch.encoded, batch.ids, acks=acks, timeout_ms=timeout_ms)
        if batch.ids is not None and batch.chunk.has_given_ids:
            text = f"the broker {connection.address} does not support message ids (a Millstream broker is required)"
            raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, text)
        return requests.produce(self._where, batch.encoded, acks=acks, timeout_ms=timeout_ms)


async def request_identity(caller: RetryingCaller, deadline: Deadline) -> ProducerIdentity:
    """Request a new producer id from any broker."""
    try:
        return await caller.anyone(requests.init_producer_id(), deadline)
    except ConnectionLostError as error:
        # No message was sent under the lost id, so no outcome is unknown.
        raise MillstreamError(error.code, error.detail) from error

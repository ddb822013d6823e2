"""The way of a batch to its partition's leader, and the one place that knows in which request it travels."""

from collections.abc import Callable

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
    """To one partition's leader, whoever that is by then."""

    def __init__(self, asking: RetryingCaller, where: TopicPartition, posting: RequestBatcher) -> None:
        self._asking = asking
        self._posting = posting
        self._cluster = asking.cluster
        self._where = where
        self.keeps_ids = True

    async def find(self, deadline: Deadline) -> BrokerConnection:
        topic, partition = self._where
        try:
            address = await self._cluster.leader(topic, partition, deadline, auto_create=True)
            return await self._cluster.to(address, deadline)
        except MillstreamError:
            self._cluster.forget(topic)
            raise

    async def send(self, connection: BrokerConnection, batch: ProducerBatch, deadline: Deadline) -> Produced:
        try:
            produced = await connection.request(self._request(connection, batch), self._cluster.timeout_s(deadline))
        except MillstreamError:
            self._cluster.forget(self._where.topic)
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
        answer.add_done_callback(self._forget_if_failed)
        return InFlightBatch(connection, answer)

    def _answer(self, connection: BrokerConnection, batch: ProducerBatch) -> Answer:
        deadline: Deadline = batch.chunk.deadline
        timeout_s, request = self._cluster.timeout_s(deadline), self._request(connection, batch)
        if not self.keeps_ids:
            return connection.post(request, timeout_s)
        timeout_ms = self._cluster.broker_timeout_ms(deadline)
        return self._posting.post(connection, self._where, batch.encoded, timeout_s, timeout_ms)

    def _forget_if_failed(self, answer: Answer) -> None:
        if answer.exception() is not None or isinstance(answer.result(), MillstreamError):
            self._cluster.forget(self._where.topic)

    def _request(self, connection: BrokerConnection, batch: ProducerBatch) -> ApiRequest[Produced]:
        """Puts, which message ids travel in; Produce for brokers that have nothing else, and keep no ids."""
        timeout_ms = self._cluster.broker_timeout_ms(batch.chunk.deadline)
        acks = batch.chunk.options.acks
        self.keeps_ids = connection.serves(requests.PUTS)
        mark(batch, made_ids=self.keeps_ids and batch.base_sequence >= 0)
        if self.keeps_ids:
            return requests.puts(self._where, batch.encoded, batch.ids, acks=acks, timeout_ms=timeout_ms)
        if batch.ids is not None and batch.chunk.has_given_ids:
            text = f"{connection.address} keeps no message ids, so that nothing can be stored under one there"
            raise MillstreamError(ErrorCode.UNSUPPORTED_VERSION, text)
        return requests.produce(self._where, batch.encoded, acks=acks, timeout_ms=timeout_ms)


async def ask_identity(asking: RetryingCaller, deadline: Deadline) -> ProducerIdentity:
    """A new identity from whichever broker answers."""
    try:
        return await asking.anyone(requests.init_producer_id(), deadline)
    except ConnectionLostError as error:
        # An id that never arrived puts no message in doubt.
        raise MillstreamError(error.code, error.detail) from error

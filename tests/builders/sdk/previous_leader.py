"""Provides a simulated broker that refuses every read of an iterator and names the current leader."""

import asyncio
from struct import unpack_from
from typing import cast

from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.errors import ErrorCode
from millstream.seams.network import Network
from millstream.wire.framing import SIZE, frame_response, has_flexible_response_header
from millstream.wire.messages import write_response
from millstream.wire.schema_readers import Fields

PORT = 9092
_SERVED = {18: "ApiVersions", 1002: "Role", 1015: "ReadIterator"}


class PreviousLeader:
    """Records the APIs of its requests. It answers only the APIs that a reader of iterators sends to a leader."""

    def __init__(self, leader: BrokerEndpoint, leader_epoch: int) -> None:
        self.apis: list[str] = []
        self._leader = leader
        self._leader_epoch = leader_epoch

    @property
    def reads(self) -> int:
        return self.apis.count("ReadIterator")

    async def listen(self, network: Network, host: str) -> None:
        await network.listen(lambda: _Connection(self), host, PORT)

    def answer(self, api: str) -> Fields:
        self.apis.append(api)
        if api == "ApiVersions":
            rows = [{"api_key": key, "min_version": 0, "max_version": 3 if key == 18 else 0} for key in _SERVED]
            return {"api_keys": rows}
        if api == "Role":
            return {}
        return {
            "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER.number,
            "current_leader": {"leader_id": self._leader.node_id, "leader_epoch": self._leader_epoch},
            "node_endpoints": [self._leader._asdict()],
        }


class _Connection(asyncio.Protocol):
    def __init__(self, broker: PreviousLeader) -> None:
        self._broker = broker
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + SIZE.unpack_from(self._received)[0]:
            (size,) = SIZE.unpack_from(self._received)
            frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            key, version, correlation_id = unpack_from(">hhi", frame)
            api = _SERVED[key]
            body = write_response(api, version, self._broker.answer(api))
            is_flexible = has_flexible_response_header(api, version)
            self._transport.write(frame_response(correlation_id, is_flexible, len(body)) + body)

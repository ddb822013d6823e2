"""The current leader in Produce and Puts responses is read with its address."""

import pytest

from builders.loops import for_each
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId
from millstream.wire.current_leader import CurrentLeader
from millstream.wire.malformed import MalformedMessageError
from millstream.wire.produce import ProduceResult, parse_produce_response, write_produce_response
from millstream.wire.puts import parse_puts_response, write_puts_response

LEADER = CurrentLeader(3, 7, BrokerEndpoint(BrokerId(3), "host", 9_092))
REFUSED = ProduceResult(0, 6, current_leader=LEADER)


@for_each("version", range(3, 13))
def test_produce_responses_name_the_leader_from_version_10(version: int) -> None:
    body = write_produce_response(version, [("orders", [ProduceResult(1), REFUSED])])
    rows = [row for _, rows in parse_produce_response(version, memoryview(body), 0) for row in rows]
    assert [row.current_leader for row in rows] == [None, LEADER if version >= 10 else None]


def test_a_leader_without_an_address_is_read() -> None:
    leader = LEADER._replace(endpoint=None)
    body = write_puts_response([("orders", [ProduceResult(0, 6, current_leader=leader)])])
    assert parse_puts_response(memoryview(body), 0)[0][1][0].current_leader == leader


def test_a_leader_without_a_host_name_is_malformed() -> None:
    body = write_puts_response([("orders", [REFUSED])])
    assert parse_puts_response(memoryview(body), 0)[0][1][0].current_leader == LEADER
    assert body.count(b"\x05host") == 1
    field = len(b"\x02" + b"\0\0\0\x03" + b"\x05host" + b"\0\0\0\0" + b"\0\0")
    start = body.index(b"\x05host")
    assert body[start - 6] == field
    without = body[: start - 6] + bytes([field - 4]) + body[start - 5 : start] + b"\0" + body[start + 5 :]
    with pytest.raises(MalformedMessageError, match="host"):
        parse_puts_response(memoryview(without), 0)

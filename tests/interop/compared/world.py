"""Prepares a broker with topics and groups of the same names on both sides of a comparison."""

from typing import Any
from uuid import UUID, uuid4

from interop.clients.client import Message
from interop.clients.librdkafka import ConfluentClient
from interop.waiting import eventually
from interop.wire import ask

PLAIN, SMALL, COMPACTED, KEPT = "plain", "small", "compacted", "kept"
RESTING, CLASSIC, MODERN = "resting", "classic", "modern"
UNKNOWN_ID = UUID(int=99)
LONG_MS = 300_000
UNKNOWN_MEMBER_ID = 25
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\x05plain" + b"\xff\xff\xff\xff"
"""A subscription of version 0 with one topic. It must be valid: Kafka does not answer a member with an invalid one."""
ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\x05plain" + b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}]


class World:
    """A prepared broker.

    The topic PLAIN has two partitions, with three messages in the first. The group RESTING has a commit and no members.
    CLASSIC has a member of the classic protocol, MODERN one of the consumer protocol.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.member, self.generation = "", -1
        self.modern_member, self.modern_epoch = str(uuid4()), 0

    def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        return ask(self.host, self.port, api, version, fields)

    def prepare(self) -> None:
        client = ConfluentClient(f"{self.host}:{self.port}")
        client.create_topic(PLAIN, 2)
        client.create_topic(SMALL, 1, settings={"max.message.bytes": "1000"})
        client.create_topic(COMPACTED, 1, settings={"cleanup.policy": "compact"})
        client.create_topic(KEPT, 1, settings={"cleanup.policy": ""})
        client.write(PLAIN, 0, [Message(b"%d" % number) for number in range(3)])
        eventually(self._coordinator_errors, lambda numbers: numbers == {0}, "there is a coordinator")
        eventually(self._commit_at_rest, lambda number: number == 0, "an offset is committed")
        eventually(self._producer_error, lambda number: number == 0, "producers get ids")
        self._join_classic()
        self.stay_in_modern()

    def topic_id(self, name: str) -> UUID:
        answer = self.ask("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        topic_id: UUID = answer["topics"][0]["topic_id"]
        return topic_id

    def data_directory(self) -> str:
        path: str = self.ask("DescribeLogDirs", 4, topics=None)["results"][0]["log_dir"]
        return path

    def stay_in_modern(self) -> None:
        """Send a heartbeat for the member of MODERN, or join again if it was removed."""
        answer = self._heartbeat()
        if answer["error_code"] == UNKNOWN_MEMBER_ID:
            self.modern_epoch = 0
            answer = self._heartbeat()
        assert answer["error_code"] == 0, answer
        self.modern_epoch = answer["member_epoch"]

    def _heartbeat(self) -> dict[str, Any]:
        joining = {"subscribed_topic_names": [PLAIN], "topic_partitions": [], "rebalance_timeout_ms": LONG_MS}
        member = {"group_id": MODERN, "member_id": self.modern_member, "member_epoch": self.modern_epoch}
        return self.ask("ConsumerGroupHeartbeat", 1, **member | ({} if self.modern_epoch else joining))

    def _coordinator_errors(self) -> set[int]:
        answer = self.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[RESTING, CLASSIC, MODERN])
        return {row["error_code"] for row in answer["coordinators"]}

    def _commit_at_rest(self) -> int:
        answer = self.ask("OffsetCommit", 8, **commit(RESTING, committed_offset=2))
        number: int = answer["topics"][0]["partitions"][0]["error_code"]
        return number

    def _producer_error(self) -> int:
        number: int = self.ask("InitProducerId", 4, transactional_id=None)["error_code"]
        return number

    def _join_classic(self) -> None:
        asked = join_fields(CLASSIC)
        self.member = self.ask("JoinGroup", 9, **asked)["member_id"]
        joined = self.ask("JoinGroup", 9, **asked | {"member_id": self.member})
        self.generation = joined["generation_id"]
        self.ask("SyncGroup", 5, **self.sync_fields())

    def sync_fields(self) -> dict[str, Any]:
        return {
            "group_id": CLASSIC,
            "generation_id": self.generation,
            "member_id": self.member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": self.member, "assignment": ASSIGNMENT}],
        }


def join_fields(group: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    }


def commit(group: str, *, topic: str = PLAIN, partition: int = 0, **others: Any) -> dict[str, Any]:
    """Build the fields of an OffsetCommit; `others` replaces fields of the partition or of the group by name."""
    row = {"partition_index": partition, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    row |= {name: value for name, value in others.items() if name in row}
    rest = {name: value for name, value in others.items() if name not in row}
    fields: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    return fields | rest | {"topics": [{"name": topic, "partitions": [row]}]}

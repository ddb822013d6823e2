"""Tests behaviour that has broken clients on other brokers; TRAPS lists the tests of each trap."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from interop.clients.client import COMPRESSIONS, Client, Message
from interop.clients.every import NAMES
from interop.compared.world import commit
from interop.wire import ask
from millstream.records.header import read_header
from spec_coverage import names_of_tests

ROOT = Path(__file__).parents[2]
NO_ID = UUID(int=0)

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def raw(bootstrap: str) -> Ask:
    """Provide a function that sends one request: `raw("Metadata", 12, topics=None)`."""
    host, _, port = bootstrap.rpartition(":")
    return lambda api, version, **fields: ask(host, int(port), api, version, fields)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("writer", NAMES)
def test_compressed_batches_are_stored_compressed(
    clients: Mapping[str, Client], new_topic: Callable[..., str], raw: Ask, writer: str, compression: str
) -> None:
    topic = new_topic()
    client = clients[writer]
    messages = client.expressible([Message(b"the same again and again " * 20, b"key")] * 50)
    client.write(topic, 0, messages, compression=compression)
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
    asked = {"max_bytes": 1_000_000, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [row]}]}
    records = raw("Fetch", 12, **asked)["responses"][0]["partitions"][0]["records"]
    assert read_header(memoryview(records)).compression == COMPRESSIONS.index(compression)


def test_version_ranges_are_valid_and_produce_starts_at_version_0(raw: Ask) -> None:
    ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in raw("ApiVersions", 0)["api_keys"]}
    assert all(first <= last for first, last in ranges.values())
    assert ranges[0] == (0, 13)


def test_transaction_version_2_is_offered_only_with_end_txn_5(raw: Ask) -> None:
    answer = raw("ApiVersions", 4, client_software_name="tests", client_software_version="1")
    features = {row["name"]: row["max_version"] for row in answer["supported_features"]}
    ends = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}.get(26, -1)
    assert features.get("transaction.version", 0) < 2 or ends >= 5


def test_metadata_has_an_id_for_every_topic(raw: Ask, new_topic: Callable[..., str]) -> None:
    new_topic()
    raw("FindCoordinator", 4, key_type=0, coordinator_keys=["some"])
    topics = raw("Metadata", 12, topics=None)["topics"]
    assert topics
    assert all(topic["topic_id"] != NO_ID for topic in topics)


def test_an_empty_topic_regex_matches_no_topic(
    raw: Ask, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    new_topic()
    asked = {"group_id": new_name(), "member_id": new_name(), "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    answer = raw("ConsumerGroupHeartbeat", 1, **asked, subscribed_topic_regex="", topic_partitions=[])
    assert answer["error_code"] == 0
    assert not answer["assignment"]["topic_partitions"]


def test_offset_fetch_of_an_unknown_group_returns_no_offsets(
    raw: Ask, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic, group = new_topic(), new_name()
    asked = [{"name": topic, "partition_indexes": [0]}]
    for version in (1, 5, 7):
        answer = raw("OffsetFetch", version, group_id=group, topics=asked)
        (row,) = answer["topics"][0]["partitions"]
        assert (row["committed_offset"], row["error_code"]) == (-1, 0)


def test_offset_fetch_returns_the_metadata_of_a_commit(
    raw: Ask, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic, group = new_topic(), new_name()
    raw("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
    noted: dict[str, Any] = {"committed_offset": 0, "committed_metadata": "größer ✓", "committed_leader_epoch": 0}
    answer = raw("OffsetCommit", 8, **commit(group, topic=topic, **noted))
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    answer = raw("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
    (row,) = answer["groups"][0]["topics"][0]["partitions"]
    assert (row["metadata"], row["committed_leader_epoch"]) == ("größer ✓", 0)


TRAPS = {
    "Produce offered from version 3: older librdkafka stops compressing": (
        "interop/test_traps.py::test_compressed_batches_are_stored_compressed",
        "interop/test_traps.py::test_version_ranges_are_valid_and_produce_starts_at_version_0",
    ),
    "the header of an answer to ApiVersions is always the oldest, an unknown version gets a body of version 0": (
        "interop/test_same_errors.py::test_an_unknown_api_versions_version_is_answered_in_version_0",
        "unit/broker/test_first_contact.py::test_an_unknown_version_of_api_versions_is_answered_in_version_0",
    ),
    "aiokafka asserts that every range of versions is one": (
        "interop/test_traps.py::test_version_ranges_are_valid_and_produce_starts_at_version_0",
    ),
    "topic ids are used only where all are known": ("interop/test_traps.py::test_metadata_has_an_id_for_every_topic",),
    "transaction.version 2 promises more than there is": (
        "interop/test_traps.py::test_transaction_version_2_is_offered_only_with_end_txn_5",
    ),
    "an empty expression means no topics, not all": (
        "interop/test_traps.py::test_an_empty_topic_regex_matches_no_topic",
        "unit/groups/consumer/test_regexes.py::test_a_topic_regex_matches_whole_names_only",
    ),
    "acks=0 is not answered": (
        "unit/broker/handlers/test_produce.py::test_acks_0_is_never_answered",
        "interop/test_waiting.py::test_messages_are_stored_in_order_with_every_acks_setting",
    ),
    "OffsetFetch for an unknown group is no error": (
        "interop/test_traps.py::test_offset_fetch_of_an_unknown_group_returns_no_offsets",
    ),
    "bad names, missing keys and bad settings have errors of their own": (
        "interop/test_same_errors.py::test_a_request_gets_the_same_error_as_from_kafka",
        "interop/test_compaction.py::test_a_message_without_a_key_is_refused",
        "interop/test_admin.py::test_creating_an_invalid_topic_is_refused",
    ),
    "topics are made on Metadata": ("interop/test_writing.py::test_writing_to_a_missing_topic_creates_it",),
    "ListOffsets by time": ("interop/test_matrix.py::test_a_timestamp_finds_the_first_message_at_or_after_it",),
    "fetch from the middle of a batch": ("interop/test_matrix.py::test_a_reader_can_start_in_the_middle_of_a_batch",),
    "CreatePartitions is answered": ("interop/test_administration.py::test_partitions_are_added_to_a_topic",),
    "what is noted with a commit is kept": (
        "interop/test_traps.py::test_offset_fetch_returns_the_metadata_of_a_commit",
    ),
    "DescribeConfigs tells defaults": (
        "interop/test_administration.py::test_a_topic_is_created_with_settings_described_and_deleted",
    ),
    "max.message.bytes holds": ("interop/test_admin.py::test_a_too_large_message_is_refused_and_later_writes_succeed",),
    "no UNKNOWN_MEMBER_ID when many rebalance at once": (
        "interop/test_groups.py::test_members_that_join_and_leave_at_once_get_all_partitions",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_the_tests_of_each_trap_exist(trap: str) -> None:
    for test in TRAPS[trap]:
        file, _, name = test.partition("::")
        assert name in names_of_tests((ROOT / "tests" / file).read_text(encoding="utf-8")), test

"""What has broken clients on other brokers: each trap has a test, here or where the last table says."""

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
    """Asks the broker one thing: `raw("Metadata", 12, topics=None)`."""
    host, _, port = bootstrap.rpartition(":")
    return lambda api, version, **fields: ask(host, int(port), api, version, fields)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("writer", NAMES)
def test_what_is_to_be_compressed_is_stored_compressed(
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


def test_no_request_is_offered_in_a_range_that_is_none_and_produce_from_the_first_version(raw: Ask) -> None:
    ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in raw("ApiVersions", 0)["api_keys"]}
    assert all(first <= last for first, last in ranges.values())
    assert ranges[0] == (0, 13)


def test_transactions_of_the_second_kind_are_offered_only_with_the_request_that_ends_them(raw: Ask) -> None:
    answer = raw("ApiVersions", 4, client_software_name="tests", client_software_version="1")
    features = {row["name"]: row["max_version"] for row in answer["supported_features"]}
    ends = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}.get(26, -1)
    assert features.get("transaction.version", 0) < 2 or ends >= 5


def test_every_topic_is_told_with_its_id(raw: Ask, new_topic: Callable[..., str]) -> None:
    new_topic()
    raw("FindCoordinator", 4, key_type=0, coordinator_keys=["some"])
    topics = raw("Metadata", 12, topics=None)["topics"]
    assert topics
    assert all(topic["topic_id"] != NO_ID for topic in topics)


def test_an_empty_expression_means_no_topics(
    raw: Ask, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    new_topic()
    asked = {"group_id": new_name(), "member_id": new_name(), "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    answer = raw("ConsumerGroupHeartbeat", 1, **asked, subscribed_topic_regex="", topic_partitions=[])
    assert answer["error_code"] == 0
    assert not answer["assignment"]["topic_partitions"]


def test_an_unknown_group_has_committed_nothing_which_is_no_error(
    raw: Ask, new_topic: Callable[..., str], new_name: Callable[[], str]
) -> None:
    topic, group = new_topic(), new_name()
    asked = [{"name": topic, "partition_indexes": [0]}]
    for version in (1, 5, 7):
        answer = raw("OffsetFetch", version, group_id=group, topics=asked)
        (row,) = answer["topics"][0]["partitions"]
        assert (row["committed_offset"], row["error_code"]) == (-1, 0)


def test_what_was_noted_with_a_commit_is_told_again(
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
        "interop/test_traps.py::test_what_is_to_be_compressed_is_stored_compressed",
        "interop/test_traps.py::test_no_request_is_offered_in_a_range_that_is_none_and_produce_from_the_first_version",
    ),
    "the header of an answer to ApiVersions is always the oldest, an unknown version gets a body of version 0": (
        "interop/test_same_errors.py::test_an_unknown_version_of_api_versions_is_answered_in_the_oldest",
        "unit/broker/test_first_contact.py::test_an_unknown_version_of_api_versions_is_answered_in_version_0",
    ),
    "aiokafka asserts that every range of versions is one": (
        "interop/test_traps.py::test_no_request_is_offered_in_a_range_that_is_none_and_produce_from_the_first_version",
    ),
    "topic ids are used only where all are known": ("interop/test_traps.py::test_every_topic_is_told_with_its_id",),
    "transaction.version 2 promises more than there is": (
        "interop/test_traps.py::test_transactions_of_the_second_kind_are_offered_only_with_the_request_that_ends_them",
    ),
    "an empty expression means no topics, not all": (
        "interop/test_traps.py::test_an_empty_expression_means_no_topics",
        "unit/groups/consumer/test_regexes.py::test_an_expression_matches_whole_names_and_an_empty_one_matches_nothing",
    ),
    "acks=0 is not answered": (
        "unit/broker/handlers/test_produce.py::test_acks_0_is_never_answered",
        "interop/test_waiting.py::test_messages_are_stored_in_order_however_little_the_writer_waits",
    ),
    "OffsetFetch for an unknown group is no error": (
        "interop/test_traps.py::test_an_unknown_group_has_committed_nothing_which_is_no_error",
    ),
    "bad names, missing keys and bad settings have errors of their own": (
        "interop/test_same_errors.py::test_a_request_gets_the_error_that_kafka_gives",
        "interop/test_compaction.py::test_a_message_without_a_key_is_refused",
        "interop/test_admin.py::test_a_topic_that_cannot_be_is_refused_by_name",
    ),
    "topics are made on Metadata": ("interop/test_writing.py::test_writing_to_a_topic_that_is_not_there_makes_it",),
    "ListOffsets by time": ("interop/test_matrix.py::test_a_time_stamp_leads_to_the_first_message_that_is_not_older",),
    "fetch from the middle of a batch": ("interop/test_matrix.py::test_a_reader_can_begin_in_the_middle_of_a_batch",),
    "CreatePartitions is answered": ("interop/test_administration.py::test_a_topic_is_given_more_partitions",),
    "what is noted with a commit is kept": ("interop/test_traps.py::test_what_was_noted_with_a_commit_is_told_again",),
    "DescribeConfigs tells defaults": (
        "interop/test_administration.py::test_a_topic_is_created_with_settings_described_and_deleted",
    ),
    "max.message.bytes holds": (
        "interop/test_admin.py::test_a_message_larger_than_its_topic_allows_is_refused_and_the_log_goes_on",
    ),
    "no UNKNOWN_MEMBER_ID when many rebalance at once": (
        "interop/test_groups.py::test_members_that_come_and_go_at_once_all_get_their_share",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_the_tests_that_stand_for_a_trap_are_there(trap: str) -> None:
    for test in TRAPS[trap]:
        file, _, name = test.partition("::")
        assert name in names_of_tests((ROOT / "tests" / file).read_text(encoding="utf-8")), test

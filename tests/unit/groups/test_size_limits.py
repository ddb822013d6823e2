"""Tests the size limits of groups: their records always fit, and only the request that exceeds a limit is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from builders.groups.consumers import JOINING, Consumer, request
from builders.groups.machine import Driver, offering, subscription
from builders.groups.site import GroupSite, commit, join, run_groups, settled_member
from builders.groups.topics import Topics
from millstream.groups.commands import AssignedBytes
from millstream.groups.responses import ConsumerHeartbeatResponse, JoinResponse, PartitionErrors, SyncResponse
from millstream.groups.size_limits import ASSIGNED_BYTES_MAX, RECORD_BYTES_MAX, TOLD_BYTES_MAX
from millstream.model.errors import ErrorCode

OK = ErrorCode.NONE
MIB = 1024 * 1024


def telling(size_bytes: int) -> dict[str, Any]:
    return {"protocols": offering("range", metadata=bytes(size_bytes))}


def assert_records_fit(driver: Driver) -> None:
    assert (
        max((len(record.key) + len(record.value or b"") for record in driver.log), default=0) < RECORD_BYTES_MAX - 1024
    )


def test_members_whose_data_exceeds_the_record_of_their_group_are_refused() -> None:
    driver = Driver()
    leader, *others = driver.stable(7, **telling(MIB))
    assert driver.join(**telling(MIB)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.state() == "Stable"
    small = driver.send_join(**telling(100))
    for each in others:
        driver.send_join(each.member_id, **telling(MIB))
    leader = driver.join(leader.member_id, **telling(MIB))
    assert driver.answer(small, JoinResponse).error is OK
    share = ASSIGNED_BYTES_MAX // 8
    assert driver.sync(
        leader, assignments=tuple(AssignedBytes(each.member_id, bytes(share)) for each in leader.members)
    )
    assert driver.state() == "Stable"
    assert_records_fit(driver)


@pytest.mark.parametrize("knows_member_id_required", [False, True])
def test_a_first_member_over_the_size_limit_creates_no_group(knows_member_id_required: bool) -> None:
    driver = Driver()
    joined = driver.join(**telling(TOLD_BYTES_MAX), knows_member_id_required=knows_member_id_required)
    assert joined.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not driver.machine.group_ids()
    assert driver.machine.next_deadline_ms is None


def test_a_member_whose_data_grows_too_large_is_removed_and_the_others_continue() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    assert driver.join(second.member_id, **telling(TOLD_BYTES_MAX)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(first.member_id).error is OK
    assert [each.member_id for each in driver.describe().members] == [first.member_id]


def test_only_the_current_data_of_a_member_counts_towards_the_limit() -> None:
    driver = Driver()
    for _ in range(3):
        joined = driver.join(**telling(TOLD_BYTES_MAX - 1000))
        assert joined.error is OK
        driver.sync(joined)
        assert driver.join(joined.member_id, **telling(100)).error is OK
        assert driver.join(joined.member_id, **telling(TOLD_BYTES_MAX - 1000)).error is OK
        driver.leave(joined.member_id)


def test_issued_member_ids_count_towards_the_limit_until_they_expire() -> None:
    driver = Driver()
    long: dict[str, Any] = {"client_id": "c" * 30_000, "knows_member_id_required": True}
    errors = [driver.join(**long).error for _ in range(300)]
    assert errors[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.pass_time(60_000)
    assert driver.join(**long).error is ErrorCode.MEMBER_ID_REQUIRED


def test_an_assignment_that_is_too_large_is_refused_and_the_group_rebalances() -> None:
    driver = Driver()
    leader, follower = driver.gathered(2)
    waiting = driver.send_sync(follower)
    too_much = (AssignedBytes(leader.member_id, bytes(ASSIGNED_BYTES_MAX)), AssignedBytes(follower.member_id, b"x"))
    assert driver.sync(leader, assignments=too_much) == SyncResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert driver.answer(waiting, SyncResponse) == SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.state() == "PreparingRebalance"
    assert not driver.log


def consumer_driver() -> Driver:
    return Driver(topics=Topics(orders=6))


def many_topics(size_bytes: int) -> tuple[str, ...]:
    return tuple(f"{number:0>200}" for number in range(size_bytes // 204))


def test_a_group_of_the_consumer_protocol_has_the_same_size_limit() -> None:
    driver = consumer_driver()
    member = Consumer(driver, "m")
    member.join()
    for number in range(7):
        told = JOINING | {"subscribed_topics": many_topics(MIB)}
        assert driver.ask(request(f"n{number}", 0, **told), ConsumerHeartbeatResponse).error is OK
    before = len(driver.log)
    refused = driver.ask(request("o", 0, **told), ConsumerHeartbeatResponse)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert str(TOLD_BYTES_MAX) in refused.detail
    grown = driver.ask(request("m", member.epoch, subscribed_topics=many_topics(MIB)), ConsumerHeartbeatResponse)
    assert grown.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    classic = driver.join(protocols=offering("range", metadata=subscription(*many_topics(MIB))))
    assert classic.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(driver.log) == before
    assert member.beat().error is OK
    driver.ask(request("n0", -1), ConsumerHeartbeatResponse)
    assert driver.ask(request("o", 0, **told), ConsumerHeartbeatResponse).error is OK
    assert_records_fit(driver)


def test_a_record_that_the_log_refuses_fails_only_its_own_command() -> None:
    """The limits make such a large record impossible; a log with a lower limit shows the behaviour."""

    async def story(site: GroupSite) -> None:
        await settled_member(site, "others")
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=2_000)
        waits_for_members = site.put(join(group_id="others"))
        waits_for_flush = site.put(commit(7))
        too_large = site.put(commit(8, metadata="x" * 3_000))
        assert too_large.answers == [PartitionErrors(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)]
        assert (await waits_for_members.answer(JoinResponse)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await waits_for_flush.answer(PartitionErrors) == PartitionErrors()
        await site.loaded()
        assert await site.committed() == {0: 7}

    run_groups(story, offsets_partitions=1)


def test_answers_that_wait_for_a_failed_flush_become_errors() -> None:
    async def story(site: GroupSite) -> None:
        await site.commit(1)
        partition = site.partition()
        partition.settings = replace(partition.settings, max_message_bytes=2_000)
        site.disk.flush_error_chance = 1.0
        waits_for_flush = site.put(commit(7))
        site.put(commit(8, metadata="x" * 3_000))
        assert (await waits_for_flush.answer(PartitionErrors)).error is ErrorCode.KAFKA_STORAGE_ERROR
        site.disk.flush_error_chance = 0.0
        await site.loaded()
        assert await site.commit(9) is OK

    run_groups(story)

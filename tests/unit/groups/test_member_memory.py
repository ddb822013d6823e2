"""Tests the memory budget of group members: over all groups of a broker, and free again when members go."""

from random import Random
from typing import Any

from msgspec.structs import replace

from builders.groups.consumers import JOINING, Consumer, request
from builders.groups.machine import SESSION_MS, Driver, offering
from builders.groups.site import GroupSite, join, run_groups
from builders.groups.topics import Topics
from builders.loops import for_each
from millstream.groups.commands import AssignedBytes, LeaveGroup, LeavingMember
from millstream.groups.member_memory import OWNED_PARTITION_BYTES
from millstream.groups.responses import ConsumerHeartbeatResponse, JoinResponse, LeaveResponse, SyncResponse
from millstream.model.errors import ErrorCode

OK = ErrorCode.NONE
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
MIB = 1024 * 1024


def telling(size_bytes: int) -> dict[str, Any]:
    return {"protocols": offering("range", metadata=bytes(size_bytes))}


def test_joins_beyond_the_memory_of_the_broker_are_refused_until_members_leave() -> None:
    async def story(site: GroupSite) -> None:
        def large(number: int) -> Any:
            return replace(join(group_id=f"group-{number}"), protocols=offering("range", metadata=bytes(900_000)))

        joined = [await site.ask(large(number), JoinResponse) for number in range(20)]
        assert [each.error for each in joined] == [OK] * 16 + [FULL] * 4, "seven eighths of 16 MiB"
        assert 16 * 900_000 < site.groups.figures().member_bytes < 14 * MIB
        small = await site.ask(join(group_id="small"), JoinResponse)
        assert small.error is OK
        leave = LeaveGroup("group-3", (LeavingMember(joined[3].member_id, None),))
        assert (await site.ask(leave, LeaveResponse)).members[0].error is OK
        assert (await site.ask(large(20), JoinResponse)).error is OK
        await site.restart()
        await site.loaded()
        assert site.groups.figures().member_bytes < MIB, "groups without an assignment are not stored"

    run_groups(story, memory_bytes=16 * MIB)


def test_the_memory_of_members_is_free_after_their_session() -> None:
    driver = Driver(memory_bytes=MIB)
    for group in ("a", "b"):
        assert driver.join(group_id=group, **telling(400_000)).error is OK
    assert driver.join(group_id="c", **telling(400_000)).error is FULL
    assert driver.refusals == 1
    driver.pass_time(10 * SESSION_MS)
    assert driver.machine.member_bytes < 1_000
    assert driver.join(group_id="c", **telling(400_000)).error is OK


def test_a_member_of_a_working_group_may_use_the_rest_of_the_budget() -> None:
    driver = Driver(memory_bytes=MIB)
    (member,) = driver.stable(group_id="working")
    assert driver.join(group_id="hoard", **telling(MIB * 7 // 8 - 2_000)).error is OK
    assert driver.join(group_id="new", **telling(2_000)).error is FULL
    assert driver.join(member.member_id, "working", **telling(50_000)).error is OK
    assert driver.join(member.member_id, "working", **telling(200_000)).error is FULL


def test_an_assignment_beyond_the_memory_of_the_broker_is_refused() -> None:
    driver = Driver(memory_bytes=4 * MIB)
    for number in range(3):
        (leader,) = driver.gathered(group_id=f"group-{number}")
        assignment = (AssignedBytes(leader.member_id, bytes(MIB)),)
        answer = driver.sync(leader, f"group-{number}", assignments=assignment)
        assert answer.error is (OK if number == 0 else FULL)
        assert driver.state(f"group-{number}") == ("Stable" if number == 0 else "PreparingRebalance")
    again = driver.join(leader.member_id, "group-2")
    assert driver.sync(again, "group-2") == SyncResponse(OK, "consumer", "range", leader.member_id.encode())


def test_consumer_protocol_members_share_the_budget_with_their_assignments() -> None:
    driver = Driver(topics=Topics(orders=100), memory_bytes=MIB)
    member = Consumer(driver, "m")
    member.join()
    assert driver.machine.member_bytes > 100 * OWNED_PARTITION_BYTES
    told = JOINING | {"subscribed_topics": tuple(f"{number:0>200}" for number in range(2_000))}
    assert driver.ask(request("n", 0, **told), ConsumerHeartbeatResponse).error is OK
    refused = [driver.ask(request(f"o{number}", 0, **told), ConsumerHeartbeatResponse) for number in range(2)]
    assert [each.error for each in refused] == [OK, FULL]
    assert "group_memory_bytes" in refused[1].detail
    for left in ("m", "n", "o0"):
        assert driver.ask(request(left, -1), ConsumerHeartbeatResponse).error is OK
    assert driver.machine.member_bytes < 1_000


@for_each("seed", range(20))
def test_the_total_is_the_sum_of_the_groups_after_any_sequence_of_commands(seed: int) -> None:
    random = Random(seed)
    driver = Driver(topics=Topics(orders=6), members_max=4)
    joined: list[tuple[str, JoinResponse]] = []
    for _ in range(100):
        group = random.choice("abc")
        match random.randrange(6):
            case 0 | 1:
                token = driver.send_join(group_id=group, **telling(random.randrange(1_000)))
                if isinstance(answer := driver.answers.get(token), JoinResponse):
                    joined.append((group, answer))
            case 2 if joined:
                group, member = random.choice(joined)
                driver.send_sync(member, group)
            case 3 if joined:
                group, member = joined.pop(random.randrange(len(joined)))
                driver.leave(member.member_id, group_id=group)
            case 4:
                driver.ask(request("m", 0, **JOINING, group_id=group), ConsumerHeartbeatResponse)
            case _:
                driver.pass_time(random.choice([10, SESSION_MS, 1_000_000]))
        groups = driver.machine._groups.values()
        assert driver.machine.member_bytes == sum(each.member_bytes for each in groups)
    again = driver.restarted().machine
    assert again.member_bytes == sum(each.member_bytes for each in again._groups.values())

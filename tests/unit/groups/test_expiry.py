"""What nobody needs any longer is forgotten, in the log too."""

from typing import Any

from builders.groups.machine import SESSION_MS, Driver, offering, subscription
from millstream.groups.machine import WORK_PER_TICK
from millstream.groups.machine_context import LOOK_EVERY_MS
from millstream.groups.settings import DAY_MS

RETENTION_MS = 2 * DAY_MS
PATIENT_MS = 10 * RETENTION_MS


def kept() -> Driver:
    """With members that can be silent for long."""
    return Driver(offsets_retention_ms=RETENTION_MS, session_timeout_max_ms=PATIENT_MS)


def groups(driver: Driver) -> list[str]:
    return list(driver.machine.group_ids())


def test_offsets_of_a_simple_group_go_each_at_its_time_and_the_group_with_the_last() -> None:
    driver = kept()
    driver.commit(("orders", 0, 1))
    driver.pass_time(DAY_MS)
    driver.commit(("orders", 1, 1))
    driver.pass_time(RETENTION_MS - DAY_MS - 1)
    assert driver.offsets() == {("orders", 0): 1, ("orders", 1): 1}
    driver.pass_time(1)
    assert driver.offsets() == {("orders", 1): 1}
    driver.pass_time(DAY_MS)
    assert groups(driver) == groups(driver.restarted()) == []
    assert driver.machine.next_deadline_ms is None


def test_committing_again_keeps_an_offset() -> None:
    driver = kept()
    for _ in range(5):
        driver.commit(("orders", 0, 1))
        driver.pass_time(RETENTION_MS - 1)
    assert driver.offsets() == {("orders", 0): 1}


def test_a_group_with_members_keeps_what_they_read_however_long_ago_it_was_committed() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS)
    driver.commit(("orders", 0, 1), ("once", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 3)
    assert driver.offsets() == {("orders", 0): 1}


def test_a_group_whose_protocol_nobody_understands_keeps_everything_while_it_has_members() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS, protocol_type="connect", protocols=offering("compatible"))
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 3)
    assert driver.offsets() == {("orders", 0): 1}


def test_once_a_group_is_empty_its_offsets_have_the_whole_time_left() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS)
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 2)
    driver.leave(member.member_id)
    driver.pass_time(RETENTION_MS - 1)
    assert driver.offsets() == {("orders", 0): 1}
    driver.pass_time(1)
    assert groups(driver) == groups(driver.restarted()) == []


def test_the_time_goes_on_over_a_restart() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), by=member)
    driver.leave(member.member_id)
    driver.pass_time(RETENTION_MS - 1)
    driver = driver.restarted()
    assert driver.offsets() == {("orders", 0): 1}
    driver.pass_time(1)
    assert groups(driver) == []


def test_an_empty_group_without_offsets_goes_after_a_while() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    driver.pass_time(LOOK_EVERY_MS - 1)
    assert groups(driver) == ["g"]
    driver.pass_time(1)
    assert groups(driver) == groups(driver.restarted()) == []


def test_a_group_whose_members_never_came_goes_after_a_while_without_a_trace() -> None:
    driver = kept()
    driver.join(knows_member_id_required=True)
    driver.pass_time(SESSION_MS + LOOK_EVERY_MS)
    assert groups(driver) == []
    assert driver.log == []


def test_a_group_that_is_only_empty_for_a_moment_does_not_go() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    driver.pass_time(LOOK_EVERY_MS - 1)
    driver.stable(session_timeout_ms=PATIENT_MS)
    driver.pass_time(LOOK_EVERY_MS)
    assert groups(driver) == ["g"]


def test_members_that_stop_reading_a_topic_let_its_offsets_go() -> None:
    driver = kept()
    long: dict[str, Any] = {"session_timeout_ms": PATIENT_MS}
    (member,) = driver.stable(**long)
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 2)
    again = driver.join(member.member_id, protocols=offering("range", metadata=subscription("other")), **long)
    driver.sync(again)
    driver.pass_time(LOOK_EVERY_MS)
    assert driver.offsets() == {}


def test_many_groups_that_are_due_at_once_are_looked_at_in_parts() -> None:
    driver = kept()
    many = WORK_PER_TICK // 10
    for number in range(30):
        driver.commit(*(("orders", partition, 1) for partition in range(many)), group_id=f"g{number}")
    driver.at_ms += RETENTION_MS
    driver.tick()
    assert 0 < len(groups(driver)) < 30
    due_ms = driver.machine.next_deadline_ms
    assert due_ms is not None
    assert due_ms <= driver.at_ms
    driver.pass_time(0)
    assert groups(driver) == []

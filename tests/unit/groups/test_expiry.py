"""Tests that offsets and groups expire, also in the log."""

from typing import Any

from builders.groups.machine import SESSION_MS, Driver, offering, subscription
from millstream.groups.machine import WORK_PER_TICK
from millstream.groups.machine_context import LOOK_EVERY_MS
from millstream.groups.settings import DAY_MS

RETENTION_MS = 2 * DAY_MS
PATIENT_MS = 10 * RETENTION_MS


def kept() -> Driver:
    """A driver with a short retention, whose members may have very long session timeouts."""
    return Driver(offsets_retention_ms=RETENTION_MS, session_timeout_max_ms=PATIENT_MS)


def groups(driver: Driver) -> list[str]:
    return list(driver.machine.group_ids())


def test_offsets_of_a_simple_group_expire_one_by_one_and_then_the_group() -> None:
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


def test_a_new_commit_restarts_the_retention_of_an_offset() -> None:
    driver = kept()
    for _ in range(5):
        driver.commit(("orders", 0, 1))
        driver.pass_time(RETENTION_MS - 1)
    assert driver.offsets() == {("orders", 0): 1}


def test_offsets_of_subscribed_topics_do_not_expire_while_the_group_has_members() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS)
    driver.commit(("orders", 0, 1), ("once", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 3)
    assert driver.offsets() == {("orders", 0): 1}


def test_offsets_of_an_unknown_protocol_type_do_not_expire_while_it_has_members() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS, protocol_type="connect", protocols=offering("compatible"))
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 3)
    assert driver.offsets() == {("orders", 0): 1}


def test_the_retention_starts_when_the_group_becomes_empty() -> None:
    driver = kept()
    (member,) = driver.stable(session_timeout_ms=PATIENT_MS)
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 2)
    driver.leave(member.member_id)
    driver.pass_time(RETENTION_MS - 1)
    assert driver.offsets() == {("orders", 0): 1}
    driver.pass_time(1)
    assert groups(driver) == groups(driver.restarted()) == []


def test_the_retention_time_continues_across_a_restart() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.commit(("orders", 0, 1), by=member)
    driver.leave(member.member_id)
    driver.pass_time(RETENTION_MS - 1)
    driver = driver.restarted()
    assert driver.offsets() == {("orders", 0): 1}
    driver.pass_time(1)
    assert groups(driver) == []


def test_an_empty_group_without_offsets_is_removed_at_the_next_check() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    driver.pass_time(LOOK_EVERY_MS - 1)
    assert groups(driver) == ["g"]
    driver.pass_time(1)
    assert groups(driver) == groups(driver.restarted()) == []


def test_a_group_whose_members_never_joined_is_removed_without_records() -> None:
    driver = kept()
    driver.join(knows_member_id_required=True)
    driver.pass_time(SESSION_MS + LOOK_EVERY_MS)
    assert groups(driver) == []
    assert driver.log == []


def test_a_group_that_was_empty_only_briefly_is_not_removed() -> None:
    driver = kept()
    (member,) = driver.stable()
    driver.leave(member.member_id)
    driver.pass_time(LOOK_EVERY_MS - 1)
    driver.stable(session_timeout_ms=PATIENT_MS)
    driver.pass_time(LOOK_EVERY_MS)
    assert groups(driver) == ["g"]


def test_offsets_of_a_topic_expire_after_the_members_unsubscribe_from_it() -> None:
    driver = kept()
    long: dict[str, Any] = {"session_timeout_ms": PATIENT_MS}
    (member,) = driver.stable(**long)
    driver.commit(("orders", 0, 1), by=member)
    driver.pass_time(RETENTION_MS * 2)
    again = driver.join(member.member_id, protocols=offering("range", metadata=subscription("other")), **long)
    driver.sync(again)
    driver.pass_time(LOOK_EVERY_MS)
    assert driver.offsets() == {}


def test_many_groups_that_are_due_together_expire_over_several_ticks() -> None:
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

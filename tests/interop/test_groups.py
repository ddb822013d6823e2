"""Tests groups with each client: joining, sharing, leaving, committing, resuming and resetting offsets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from interop.abilities import PROTOCOL_ABILITIES, each_that_can, own_protocol
from interop.clients.ability import Ability
from interop.clients.client import (
    COOPERATIVE,
    EAGER,
    NEW,
    AdminClient,
    Client,
    GroupView,
    Member,
    Message,
    RefusedError,
)
from interop.clients.every import able
from interop.waiting import eventually

Place = tuple[int, int]

NON_EMPTY_GROUP = 68


@contextmanager
def member_of(client: Client, group: str, topic: str, protocol: str | None = None) -> Iterator[Member]:
    member = client.join(group, topic, protocol or own_protocol(client.name))
    with ExitStack() as stack:
        stack.callback(member.leave)
        yield member


def write_to_all(clients: Mapping[str, Client], topic: str, partitions: int, count: int) -> None:
    for partition in range(partitions):
        clients["confluent-kafka"].write(topic, partition, [Message(b"%d" % number) for number in range(count)])


def places(members: Iterable[Member]) -> list[Place]:
    return [(one.partition, one.offset) for member in members for one in member.received()]


def range_of_places(partitions: int, start: int, end: int) -> set[Place]:
    return {(partition, offset) for partition in range(partitions) for offset in range(start, end)}


def await_places(members: Iterable[Member], wanted: set[Place]) -> None:
    known = list(members)
    eventually(lambda: wanted - set(places(known)), lambda missing: not missing, "every message reaches a member")


def await_assignment(*members: Member, partitions: int) -> None:
    everything = sorted(range(partitions))

    def is_fair(shares: list[frozenset[int]]) -> bool:
        return all(shares) and sorted(number for share in shares for number in share) == everything

    eventually(lambda: [member.assigned() for member in members], is_fair, "each partition has one member")


@pytest.mark.parametrize(
    ("client", "protocol"),
    [(name, protocol) for protocol, ability in PROTOCOL_ABILITIES.items() for name in able(ability)],
    indirect=["client"],
)
def test_members_share_partitions_and_take_over_after_a_leave(
    clients: Mapping[str, Client],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    client: Client,
    protocol: str,
) -> None:
    topic, group = new_topic(4), new_name()
    write_to_all(clients, topic, 4, 5)
    with member_of(client, group, topic, protocol) as second:
        with member_of(client, group, topic, protocol) as first:
            await_assignment(first, second, partitions=4)
            write_to_all(clients, topic, 4, 5)
            await_places([first, second], range_of_places(4, 0, 10))
            kept = second.assigned()
        await_assignment(second, partitions=4)
        write_to_all(clients, topic, 4, 5)
        await_places([second], range_of_places(4, 10, 15))
        if protocol in (COOPERATIVE, NEW):
            # Nothing was committed, so a revoked partition would have been read again.
            again = [place for place in places([second]) if place[0] in kept]
            assert len(again) == len(set(again))


@each_that_can(Ability.COMMIT)
def test_a_group_resumes_at_its_committed_offsets(
    clients: Mapping[str, Client],
    admins: Mapping[str, AdminClient],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    client: Client,
) -> None:
    topic, group = new_topic(2), new_name()
    write_to_all(clients, topic, 2, 10)
    with member_of(client, group, topic) as member:
        await_places([member], range_of_places(2, 0, 10))
        member.commit()
    assert admins["confluent-kafka"].committed(group, topic) == {0: 10, 1: 10}
    write_to_all(clients, topic, 2, 3)
    with member_of(client, group, topic) as member:
        await_places([member], range_of_places(2, 10, 13))
        assert sorted(places([member])) == sorted(range_of_places(2, 10, 13))


@each_that_can(Ability.RESET)
def test_a_group_continues_at_reset_offsets(
    clients: Mapping[str, Client],
    admins: Mapping[str, AdminClient],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    client: Client,
) -> None:
    topic, group = new_topic(2), new_name()
    write_to_all(clients, topic, 2, 10)
    admin = admins[client.name]
    with member_of(client, group, topic) as member:
        await_places([member], range_of_places(2, 0, 10))
        member.commit()
    admin.reset_group(group, topic, {0: 4, 1: 8})
    assert admin.committed(group, topic) == {0: 4, 1: 8}
    wanted = {(0, offset) for offset in range(4, 10)} | {(1, offset) for offset in range(8, 10)}
    with member_of(client, group, topic) as member:
        await_places([member], wanted)
        assert set(places([member])) == wanted


@each_that_can(Ability.DESCRIBE_GROUP)
def test_a_group_is_described_with_and_without_members(
    admins: Mapping[str, AdminClient], new_topic: Callable[..., str], new_name: Callable[[], str], client: Client
) -> None:
    topic, group = new_topic(2), new_name()
    admin = admins[client.name]
    with member_of(client, group, topic) as member:
        await_assignment(member, partitions=2)
        stable = GroupView("stable", 1)
        eventually(lambda: admin.describe_group(group), lambda seen: seen == stable, "the group is stable")
        assert group in admin.groups()
    empty = GroupView("empty", 0)
    eventually(lambda: admin.describe_group(group), lambda seen: seen == empty, "the group is empty")


@each_that_can(Ability.DELETE_GROUP)
def test_a_group_is_deleted_once_its_members_have_left(
    clients: Mapping[str, Client],
    admins: Mapping[str, AdminClient],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    client: Client,
) -> None:
    topic, group = new_topic(1), new_name()
    write_to_all(clients, topic, 1, 3)
    admin = admins[client.name]
    with member_of(client, group, topic) as member:
        await_places([member], range_of_places(1, 0, 3))
        member.commit()
        with pytest.raises(RefusedError) as refused:
            admin.delete_group(group)
        assert refused.value.number in (NON_EMPTY_GROUP, -1)  # -1: the client does not report the error number.
    assert admin.committed(group, topic) == {0: 3}
    admin.delete_group(group)
    assert group not in admin.groups()
    assert admins["confluent-kafka"].committed(group, topic) == {}


@pytest.mark.parametrize(("first", "second"), [("java", "confluent-kafka"), ("franz-go", "java")])
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE, NEW])
def test_different_clients_share_one_group(
    clients: Mapping[str, Client],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    first: str,
    second: str,
    protocol: str,
) -> None:
    topic, group = new_topic(4), new_name()
    with member_of(clients[first], group, topic, protocol) as one:
        with member_of(clients[second], group, topic, protocol) as other:
            await_assignment(one, other, partitions=4)
            write_to_all(clients, topic, 4, 5)
            await_places([one, other], range_of_places(4, 0, 5))
        await_assignment(one, partitions=4)


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE, NEW])
@pytest.mark.parametrize("client", ["java", "franz-go"], indirect=True)
def test_members_that_join_and_leave_at_once_get_all_partitions(
    clients: Mapping[str, Client],
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
    client: Client,
    protocol: str,
) -> None:
    topic, group = new_topic(8), new_name()
    with ExitStack() as all_of_them:
        staying = [all_of_them.enter_context(member_of(client, group, topic, protocol)) for _ in range(4)]
        with ExitStack() as some:
            going = [some.enter_context(member_of(client, group, topic, protocol)) for _ in range(4)]
            await_assignment(*staying, *going, partitions=8)
        await_assignment(*staying, partitions=8)
        write_to_all(clients, topic, 8, 2)
        await_places(staying, range_of_places(8, 0, 2))

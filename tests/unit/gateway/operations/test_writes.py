"""Tests that each written event gets its offset or its error."""

from builders.gateways.web import Ground, with_clusters
from millstream.gateway.operations.writes import EventColumns, WriteResult, write, write_one
from millstream.model.errors import ErrorCode


def test_writes_are_stored_in_order_and_return_offsets_and_ids() -> None:
    async def story(ground: Ground) -> None:
        member = ground.member
        await member.client.create_topic("orders", partitions=2)
        columns = EventColumns("orders", [b"a", b"b", None], [b"k", b"k", b"k"], partitions=[1, 1, 0])
        written = await write(member, columns)
        assert (list(written.partitions), list(written.offsets)) == ([1, 1, 0], [0, 1, 0])
        assert written.failures == {}
        again = await write(member, EventColumns("orders", [b"a", b"b"], message_ids=list(written.message_ids[:2])))
        assert (list(again.partitions), list(again.offsets)) == ([1, 1], [0, 1])
        assert again.message_ids == written.message_ids[:2]
        assert (list(written.duplicates), list(again.duplicates)) == ([], [0, 1])
        mixed = await write(member, EventColumns("orders", [b"a", b"c"], message_ids=[written.message_ids[0], "new"]))
        assert list(mixed.duplicates) == [0]

    with_clusters(story)


def test_a_single_write_returns_its_offset_or_its_error() -> None:
    async def story(ground: Ground) -> None:
        member = ground.member
        stored = await write_one(member, EventColumns("orders", [b"a"], message_ids=["mine"], timestamps_ms=[1_000]))
        assert (stored.partitions, stored.offsets, stored.message_ids) == ([0], [0], [b"mine"])
        again = await write_one(member, EventColumns("orders", [b"a"], message_ids=["mine"]))
        assert (again.offsets, list(stored.duplicates), list(again.duplicates)) == ([0], [], [0])
        refused = await write_one(member, EventColumns("orders", [b"a"], partitions=[7]))
        assert refused.failures[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.message_ids[0]

    with_clusters(story)


def test_a_write_of_many_reports_the_failed_events() -> None:
    async def story(ground: Ground) -> None:
        member = ground.member
        written = await write(member, EventColumns("orders", [b"a", b"b"], partitions=[0, 9]))
        assert list(written.failures) == [1]
        assert (list(written.partitions), list(written.offsets)) == ([0, -1], [0, -1])

    with_clusters(story)


def test_an_unacknowledged_write_times_out_and_its_retry_is_stored_once() -> None:
    async def story(ground: Ground) -> None:
        member = ground.member
        await write(member, EventColumns("orders", [b"first"]))

        async def lose() -> None:
            lost.append(await write(member, EventColumns("orders", [b"a", b"b"]), timeout_s=1.0))

        lost: list[WriteResult] = []
        await ground.restart(lose)
        assert {error.code for error in lost[0].failures.values()} == {ErrorCode.REQUEST_TIMED_OUT}
        retried = await write(member, EventColumns("orders", [b"a", b"b"], message_ids=list(lost[0].message_ids)))
        assert list(retried.offsets) == [1, 2]

    with_clusters(story)

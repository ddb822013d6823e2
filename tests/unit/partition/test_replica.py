"""Tests a replica without a leadership: its derived state follows the log."""

from collections.abc import Sequence
from random import Random

from builders.batches import batch, batch_with_ids
from builders.loops import for_each
from builders.partitions import NODE_ID, Site, committed, move_leader
from builders.putting import put_ids, put_numbered, stored_ids
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import BrokerId, LeaderEpoch, Offset, ProducerId
from millstream.model.limits import NO_LEADER_EPOCH
from millstream.partition import derived_state
from millstream.partition.derived_state import NO_BATCH, DerivedState, ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import batch_key, id_key
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.produce_rules import mark_ids
from millstream.partition.replica import Replica
from millstream.partition.runs.run import find_newest
from millstream.partition.served.partitions import Partitions
from millstream.records.header import MADE_IDS, OWN_IDS, read_header
from millstream.records.produced_batch import placed

OTHER = BrokerId(2)


async def follow(site: Site, number: int = 0) -> Replica:
    """Return a replica of `orders` whose partition broker 2 leads, after a restart."""
    for placement in await site.catalog.placements():
        if placement.key.partition == number:
            epoch = LeaderEpoch(placement.leader_epoch + 1)
            moved = placement._replace(leader=OTHER, leader_epoch=epoch, replicas=(*placement.replicas, OTHER))
            assert await site.catalog.change_placement(moved._replace(in_sync=moved.replicas)) is not None
    partitions = await site.restart()
    (replica,) = [each for each in partitions.replicas() if each.key.partition == number]
    return replica


async def made(site: Site, partitions: int = 1) -> Partitions:
    served = await site.start()
    await served.create("orders", partitions)
    return served


def append(replica: Replica, epoch: int, records: bytearray, *, ids: int = 0) -> None:
    """Append like a follower, with offset, epoch and kind of message ids from the leader."""
    log = replica.log
    if ids:
        mark_ids(memoryview(records), read_header(records), ids)
    log.append(memoryview(records), placed(memoryview(records), read_header(records), log.end_offset, epoch))
    log.write_buffered()


def packed(state: DerivedState | Replica, offset: int) -> bytes:
    """Return the state that is derived from the log below `offset`."""
    return derived_state.freeze(state.producers, state.epochs, Offset(offset), NO_BATCH, 0).pack()


def values_of(index: IdIndex | None, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the value of each key, from memory or from the runs."""
    if index is None:
        return [None] * len(keys)
    stored = find_newest(index.runs, keys)
    return [index.recent(key) or stored.get(key) for key in keys]


async def append_some(replica: Replica, random: Random) -> list[bytes]:
    """Append batches with and without producers and message ids, like a follower. Return the keys of the ids."""
    epoch, sequences, keys = 0, {9: 0, 10: 0}, []
    for number in range(40):
        epoch += random.choice([0, 0, 0, 1, 3])
        producer_id = random.choice([-2, -1, 9, 10])
        if producer_id == -2:
            append(replica, epoch, batch_with_ids(b"own-%d" % number), ids=OWN_IDS)
            keys.append(id_key(b"own-%d" % number))
        elif producer_id == -1:
            append(replica, epoch, batch(b"v"))
        else:
            sequence = sequences[producer_id]
            records = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            append(replica, epoch, records, ids=MADE_IDS)
            keys.append(batch_key(ProducerId(producer_id), epoch=0, base_sequence=sequence))
            sequences[producer_id] += 1
        if random.random() < 0.2:
            await random.choice([replica.index_ids, replica.save_ids, replica.save_state])()
    assert replica.epochs.latest == epoch
    return keys


@for_each("seed", range(40))
def test_a_replica_without_a_role_derives_the_same_state_as_a_replay(seed: int) -> None:
    random = Random(seed)

    async def story(site: Site) -> None:
        await made(site)
        replica = await follow(site)
        keys = await append_some(replica, random)
        again = derived_state.load(replica.log, int(site.clock.monotonic_s() * 1000), ProducerLimits())
        await replica.index_ids()
        assert replica.is_complete
        assert packed(replica, 40) == packed(again, 40)
        assert again.offset == replica.log.end_offset == 40
        values = values_of(replica.ids, keys)
        assert None not in values
        assert values_of(again.ids, keys) == values

    Site().run(story)


def test_a_message_id_copied_from_a_leader_is_stored_once_after_a_failover() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        replica = await follow(site)
        append(replica, 1, batch_with_ids(b"mine"), ids=OWN_IDS)
        assert site.partitions is not None
        partitions = site.partitions
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (partition,) = partitions.all()
        assert partition.is_suspended
        await partitions.upkeep()
        assert await put_ids(partition, b"mine", b"other") == [0, 1]
        assert await stored_ids(partition) == {b"mine": 1, b"other": 1}

    Site().run(story)


def test_message_ids_of_a_follower_are_indexed_by_maintenance() -> None:
    async def story(site: Site) -> None:
        await made(site)
        replica = await follow(site)
        append(replica, 1, batch_with_ids(b"mine"), ids=OWN_IDS)
        before = replica.is_complete
        partitions = site.partitions
        assert partitions is not None
        await partitions.upkeep()
        assert (before, replica.is_complete) == (False, True)
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (partition,) = partitions.all()
        assert not partition.is_suspended
        assert await put_ids(partition, b"mine") == [0]

    Site().run(story)


def test_message_ids_that_a_follower_has_not_indexed_survive_a_restart() -> None:
    async def story(site: Site) -> None:
        await made(site)
        replica = await follow(site)
        append(replica, 1, batch_with_ids(b"mine"), ids=OWN_IDS)
        records = batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0)
        append(replica, 1, records, ids=MADE_IDS)
        await replica.save_state()
        assert replica.unsaved_batches == 0
        partitions = await site.restart()
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (partition,) = partitions.all()
        assert await put_ids(partition, b"mine") == [0]
        assert await put_numbered(partition, 9, 0, b"v") == 1

    Site().run(story)


def test_a_follower_with_more_ids_than_memory_may_hold_saves_them() -> None:
    limits = ProducerLimits(ids=IdLimits(in_memory_each=4, in_memory=4))

    async def story(site: Site) -> None:
        await made(site)
        await follow(site)
        partitions = await site.restart(limits=limits)
        (replica,) = partitions.replicas()
        for number in range(50):
            append(replica, 1, batch_with_ids(b"own-%d" % number), ids=OWN_IDS)
        await replica.index_ids()
        index = replica.ids
        assert index is not None
        assert (len(index), index.covered, replica.is_complete) == (50, 50, True)

    Site().run(story)


def test_a_replica_is_held_beside_the_partitions_that_are_led() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site, 2)
        partition = partitions.get("orders", 1)
        assert partition is not None
        await committed(partition, batch(b"v"))
        replica = await follow(site, 1)
        assert site.partitions is not None
        assert [each.number for each in site.partitions.of("orders")] == [0]
        assert (site.partitions.get("orders", 1), site.partitions.get_by_id(*replica.key)) == (None, None)
        assert sorted(each.key.partition for each in site.partitions.replicas()) == [0, 1]
        assert site.partitions.count == 2
        assert (replica.log.end_offset, replica.is_current) == (1, True)
        placement = site.partitions.image.placement("orders", 1)
        assert placement is not None
        assert placement.leader == OTHER

    Site().run(story)


def test_state_of_a_replica_that_is_not_led_is_saved() -> None:
    async def story(site: Site) -> None:
        await made(site)
        replica = await follow(site)
        for sequence in range(3):
            append(replica, 1, batch(b"v", producer_id=9, base_sequence=sequence))
        assert replica.unsaved_batches == 3
        partitions = await site.restart()
        (replica,) = partitions.replicas()
        assert replica.unsaved_batches == 0, "the stop wrote a snapshot"
        assert (replica.epochs.latest, replica.producers.epoch_of(ProducerId(9))) == (1, -1)

    Site().run(story)


def test_a_truncated_replica_is_outdated() -> None:
    async def story(site: Site) -> None:
        await made(site)
        replica = await follow(site)
        replica.truncated()
        assert not replica.is_current
        append(replica, 5, batch(b"v"))
        assert replica.epochs.latest == NO_LEADER_EPOCH, "nothing is derived until the state is rebuilt"

    Site().run(story)


def test_deleting_a_topic_removes_replicas_that_are_not_led() -> None:
    async def story(site: Site) -> None:
        await made(site, 2)
        await follow(site, 1)
        assert site.partitions is not None
        assert site.store is not None
        await site.partitions.delete("orders")
        assert (site.partitions.replicas(), site.partitions.count, list(site.store.keys())) == ([], 0, [])

    Site().run(story)


def test_a_replica_asserts_that_it_gets_no_second_role() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        (partition,) = partitions.all()
        try:
            partition.replica.assume(partition)
        except AssertionError:
            return
        raise AssertionError("a second role was accepted")

    Site().run(story)


def test_a_replica_keeps_its_state_between_two_leaderships() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        (first,) = partitions.all()
        records = batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0)
        await committed(first, records)
        await move_leader(site.catalog, partitions, ("orders", 0), OTHER)
        (replica,) = partitions.replicas()
        assert (partitions.all(), replica.is_current, replica.producers.epoch_of(ProducerId(9))) == ([], True, 0)
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (second,) = partitions.all()
        assert second is not first
        assert second.replica is replica
        assert second.leader_epoch == first.leader_epoch + 2
        retry = second.append(memoryview(bytearray(records)))
        assert (retry.is_duplicate, retry.base_offset, second.log.end_offset) == (True, 0, 1)
        assert await committed(second, batch(b"w", producer_id=9, producer_epoch=0, base_sequence=1)) == 1
        assert second.epoch_end(first.leader_epoch) == (first.leader_epoch, 1)

    Site().run(story)


def test_a_reelected_leader_leads_the_same_replica_under_the_new_epoch() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        (first,) = partitions.all()
        records = batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0)
        waiting = first.append(memoryview(bytearray(records))).acknowledgement
        assert waiting is not None
        seen: list[Leadership | None] = []
        partitions.cluster.add_listener(lambda image, delta: seen.append(partitions.get("orders", 0)))
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (second,) = partitions.all()
        assert seen == [second], "the image is published after the new leadership has begun"
        assert (first.is_closed, second.is_closed, second.replica) == (True, False, first.replica)
        assert second.leader_epoch == first.leader_epoch + 1
        assert isinstance(waiting.error, MillstreamError)
        assert waiting.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        retry = second.append(memoryview(bytearray(records)))
        assert (retry.is_duplicate, retry.base_offset) == (True, 0)
        assert await committed(second, batch(b"w", producer_id=9, producer_epoch=0, base_sequence=1)) == 1
        assert second.epoch_end(first.leader_epoch) == (first.leader_epoch, 1)

    Site().run(story)


def test_an_outdated_replica_is_led_again_after_its_state_was_rebuilt() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        (first,) = partitions.all()
        await committed(first, batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0))
        await move_leader(site.catalog, partitions, ("orders", 0), OTHER)
        first.replica.outdated()
        await move_leader(site.catalog, partitions, ("orders", 0), BrokerId(NODE_ID))
        (second,) = partitions.all()
        assert second.is_suspended
        await partitions.upkeep()
        assert (second.is_suspended, second.replica.producers.epoch_of(ProducerId(9))) == (False, 0)

    Site().run(story)


def test_partitions_stay_in_order_when_one_is_led_again() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site, 3)
        await move_leader(site.catalog, partitions, ("orders", 1), OTHER)
        assert [each.number for each in partitions.of("orders")] == [0, 2]
        await move_leader(site.catalog, partitions, ("orders", 1), BrokerId(NODE_ID))
        assert [each.number for each in partitions.of("orders")] == [0, 1, 2]

    Site().run(story)


def test_a_partition_that_another_broker_took_over_is_no_longer_served() -> None:
    async def story(site: Site) -> None:
        partitions = await made(site)
        (partition,) = partitions.all()
        await committed(partition, batch(b"v"))
        placement = partition.placement
        taken = placement._replace(leader=OTHER, leader_epoch=LeaderEpoch(placement.leader_epoch + 1))
        assert await site.catalog.change_placement(taken._replace(replicas=(OTHER,), in_sync=(OTHER,))) is not None
        partition.suspend("lost its end")
        await partitions.upkeep()
        assert partition.is_closed
        assert partitions.get("orders", 0) is None
        assert [replica.key for replica in partitions.replicas()] == [partition.key]
        shown = partitions.image.placement("orders", 0)
        assert shown is not None
        assert (shown.leader, shown.leader_epoch) == (OTHER, taken.leader_epoch)

    Site().run(story)

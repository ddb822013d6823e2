"""Returns a suspended partition to service after its log was truncated or could not be read.

The derived state is read again from the log, under a new leader epoch. Clients therefore notice that the log may differ
from the one they knew.
"""

from collections.abc import Callable
from functools import partial

from millstream.catalog.catalog import Catalog, Placement
from millstream.model.ids import BrokerId, LeaderEpoch
from millstream.partition import derived_state
from millstream.partition.derived_state import ProducerLimits
from millstream.partition.leadership import Leadership
from millstream.partition.served.uncertain_commits import stored_placement
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers


async def heal(
    partition: Leadership,
    catalog: Catalog,
    node_id: BrokerId,
    placement_changed: Callable[[Placement], None],
    *,
    workers: Workers,
    clock: Clock,
    limits: ProducerLimits,
) -> bool:
    """Resume a suspended partition under a new leader epoch.

    Returns False if the catalog has another leader or no such partition; the partition is then still suspended unless
    `placement_changed` resigned it. This function calls `placement_changed` with each catalog row that differs from the
    partition's placement.
    """
    while partition.is_suspended:
        placement = partition.placement
        row = await catalog.change_placement(placement._replace(leader_epoch=LeaderEpoch(placement.leader_epoch + 1)))
        if row is None:
            # The row has changed. An earlier attempt may have caused that: its commit can succeed and still raise.
            row = await stored_placement(catalog, partition.key)
            if row is None:
                return False
        placement_changed(row)
        if row.leader != node_id:
            return False
        if row.leader_epoch == placement.leader_epoch:
            continue  # Something else in the row has changed; a new leader epoch still has to begin.
        truncations = partition.log.truncations
        load = partial(derived_state.load, partition.log, int(clock.monotonic_s() * 1000), limits)
        async with partition.replica.saving:
            derived = await workers.run(load)
            if partition.log.truncations == truncations:
                partition.resume(derived)
    return True

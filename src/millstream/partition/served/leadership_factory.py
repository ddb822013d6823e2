"""Creates the replicas of a broker, and leaderships for the partitions that it leads."""

from millstream.catalog.catalog import Placement
from millstream.partition import derived_state
from millstream.partition.leadership import Leadership
from millstream.partition.replica import Replica
from millstream.partition.served.maintenance import Maintenance
from millstream.partition.served.partition_startup import OpenedPartition
from millstream.partition.served.topic_figures import TopicFigures
from millstream.seams.clock import Clock
from millstream.seams.workers import Workers
from millstream.storage.store import LogStore
from millstream.topics.settings import TopicSettings


class LeadershipFactory:
    """Creates replicas and leaderships with the components that they share."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        workers: Workers,
        limits: derived_state.ProducerLimits,
        maintenance: Maintenance,
        *,
        validate_records: bool,
    ) -> None:
        self.budgets = derived_state.Budgets(limits)
        self.figures = TopicFigures()
        self._store = store
        self._clock = clock
        self._workers = workers
        self._limits = limits
        self._maintenance = maintenance
        self._validate_records = validate_records

    def replica(self, opened: OpenedPartition) -> Replica:
        """Create the replica of a partition on this broker."""
        replica = Replica(
            opened.topic.name,
            opened.log,
            opened.derived or derived_state.nothing(self._limits),
            clock=self._clock,
            workers=self._workers,
            budget=self.budgets,
            save_soon=self._maintenance.save_soon,
        )
        if opened.derived is None:
            replica.outdated()
        return replica

    def lead(self, replica: Replica, placement: Placement, settings: TopicSettings) -> Leadership:
        """Begin to lead a partition.

        If its derived state is not complete, the partition is suspended until the state is loaded.
        """
        leadership = Leadership(
            replica,
            settings=settings,
            placement=placement,
            store=self._store,
            clock=self._clock,
            workers=self._workers,
            traffic=self.figures.of(replica.topic, replica.key.topic_id),
            heal_soon=self._maintenance.heal_soon,
            validate_records=self._validate_records,
        )
        if not replica.is_complete:
            leadership.suspend("has producers or message ids that were not read from the log yet")
        return leadership

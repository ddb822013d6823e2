"""Tests the metrics of data directories."""

from random import Random

from prometheus_client.parser import text_string_to_metric_families

from builders.logs import open_store, run
from millstream.node.data_metrics import directory_metrics
from millstream.process.metrics import render
from millstream.storage.disk_reserve import DiskLimits
from millstream.storage.store import LogStore
from millstream.testing.simulated.disk import SimulatedDisk

CAPACITY = 200_000
LIMITS = DiskLimits(reserve_bytes=4_000, low_bytes=10_000)


def directories(store: LogStore) -> dict[str, dict[str, float]]:
    """Return the metrics of each directory, without their common prefix."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(render(directory_metrics(store.reserves)).decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("millstream_directory_")
            found.setdefault(sample.labels["directory"], {})[name] = sample.value
    return found


def test_each_data_directory_has_its_space_and_whether_writes_are_refused() -> None:
    async def story() -> None:
        disk = SimulatedDisk(Random(1))
        disk.capacity_bytes = CAPACITY
        store = await open_store(disk, "/data", "/more", disk_limits=LIMITS)
        found = directories(store)
        assert list(found) == ["/data", "/more"]
        for space in found.values():
            assert space["total_bytes"] == CAPACITY == space["used_bytes"] + space["free_bytes"]
            assert 0 < space["free_bytes"] <= CAPACITY
        disk.is_full = True
        assert await store.make_room()
        refused = {path: space["writes_refused"] for path, space in directories(store).items()}
        assert refused == {"/data": 1, "/more": 0}

    run(story())


def test_a_directory_whose_space_is_unknown_has_no_space_metrics() -> None:
    async def story() -> None:
        store = await open_store(SimulatedDisk())
        (reserve,) = store.reserves
        reserve.space = None
        assert directories(store) == {"/data": {"writes_refused": 0}}

    run(story())

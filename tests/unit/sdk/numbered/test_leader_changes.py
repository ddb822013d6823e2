"""A numbered writer follows its partitions from leader to leader, and stores each row once."""

from uuid import UUID

import pyarrow as pa

from builders.sdk.scripted_broker import Scene, play
from millstream.sdk.numbered.engine import NumberedEngine
from millstream.sdk.numbered.options import NumberedOptions
from millstream.testing.simulated.clock import SimulatedClock


def test_rows_go_to_a_named_leader_without_a_metadata_request() -> None:
    async def body(scene: Scene) -> None:
        cluster = scene.cluster
        cluster.names_leaders = True
        cluster.topic_ids["t"] = UUID(int=1)
        (log,) = cluster.topic("t")
        writer = NumberedEngine(scene.client()._caller, SimulatedClock(scene.loop), "t", NumberedOptions(None))
        for number, leader in enumerate((1, 2, 1)):
            cluster.move(log, leader)
            await writer.write(pa.RecordBatch.from_pydict({"value": [b"%d" % number]}))
            assert await writer.finish() == number + 1
        await writer.close()
        assert log.values == [b"0", b"1", b"2"]
        assert cluster.requests("Produce") == [1, 1, 2, 2, 1]
        assert len(cluster.requests("Metadata")) == 1

    play(body, nodes=2)

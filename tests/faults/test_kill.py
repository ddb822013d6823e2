"""Kills or stops the broker at random moments under load: no acknowledged message may be lost or duplicated."""

import time
from pathlib import Path
from random import Random

import pytest

from faults.load import create_topic, final_logs, mixed_load
from faults.record import SharedHistory
from faults.rounds import ROUNDS, SEED, let_it_work
from millstream.testing.real_broker import RealBroker

ENDS_PER_ROUND = 4
FLUSHES = ("always", "os") if ROUNDS == 1 else ("always", "interval", "os")

SMALL_SEGMENTS = ("--segment-bytes", "65536")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_killed_broker_loses_duplicates_and_reorders_no_message(
    tmp_path: Path, flush: str, round_number: int
) -> None:
    random = Random(f"{SEED} {round_number} {flush}")
    history = SharedHistory()
    with RealBroker(tmp_path / "data", flush=flush, extra_args=SMALL_SEGMENTS) as broker:
        partitions = create_topic(broker.bootstrap, "killed", 2)
        with mixed_load(broker.bootstrap, partitions, history):
            for _ in range(ENDS_PER_ROUND):
                let_it_work(history, random.randrange(1, 300))
                time.sleep(random.uniform(0, 0.05))
                broker.kill()
                history.crashed()
                if random.random() < 0.4:
                    broker.launch()
                    time.sleep(random.uniform(0, 0.6))
                    broker.kill()
                    history.crashed()
                broker.start()
            let_it_work(history, 100)
        assert history.given_up() == []
        history.assert_kept(final_logs(broker.bootstrap, partitions))
        broker.restart()
        history.assert_kept(final_logs(broker.bootstrap, partitions))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_broker_stopped_under_load_exits_cleanly_and_loses_nothing(tmp_path: Path, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} stop")
    history = SharedHistory()
    with RealBroker(tmp_path / "data", extra_args=SMALL_SEGMENTS) as broker:
        partitions = create_topic(broker.bootstrap, "stopped", 2)
        with mixed_load(broker.bootstrap, partitions, history):
            for _ in range(3):
                let_it_work(history, random.randrange(1, 300))
                assert broker.stop() == 0, broker.log_text()
                broker.start()
            let_it_work(history, 100)
        assert history.given_up() == []
        history.assert_kept(final_logs(broker.bootstrap, partitions))

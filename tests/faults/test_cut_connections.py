"""Cuts connections at random moments, also between a write and its acknowledgement."""

import time
from pathlib import Path
from random import Random

import pytest

from faults.load import create_topic, final_logs, mixed_load
from faults.proxy import CutProxy
from faults.record import SharedHistory
from faults.rounds import ROUNDS, SEED, let_it_work
from millstream.testing.real_broker import RealBroker

BROKER_HOST = "127.0.0.1"
PROXY_HOST = "127.0.0.2"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_producers_store_each_message_once_when_connections_are_cut(tmp_path: Path, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} cut")
    history = SharedHistory()
    flags = ("--host", BROKER_HOST, "--advertised-host", PROXY_HOST)
    with (
        RealBroker(tmp_path / "data", extra_args=flags) as broker,
        CutProxy(PROXY_HOST, broker.port, BROKER_HOST) as proxy,
    ):
        through = f"{PROXY_HOST}:{broker.port}"
        partitions = create_topic(through, "cut", 2)
        with mixed_load(through, partitions, history):
            for _ in range(8):
                let_it_work(history, random.randrange(1, 200))
                if random.random() < 0.7:
                    # These requests are processed but their answers are lost: the retries must be recognised.
                    proxy.swallow_answers()
                    time.sleep(random.uniform(0, 0.1))
                proxy.cut()
            let_it_work(history, 100)
        assert history.given_up() == []
        history.assert_kept(final_logs(through, partitions))
        assert proxy.cuts >= 8

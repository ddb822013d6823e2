"""Kills the broker during puts with message ids: retries from any process must find each message stored once."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from builders.batches import batch_with_ids
from faults.load import create_topic, final_logs
from faults.retrying import now_ms, put
from faults.rounds import ROUNDS, SEED
from millstream.model.errors import ErrorCode
from millstream.model.message_id import MadeId
from millstream.records.batch import encode_batch
from millstream.testing.real_broker import RealBroker

TOPIC = "once"
KILLS = 4
WRITERS = 3
ROOT = Path(__file__).parents[2]


class Writer(threading.Thread):
    """Puts batches with natural and made ids over plain sockets, without retries.

    `told` maps acknowledged ids to offsets; `sent` has all ids.
    """

    def __init__(self, number: int, port: int) -> None:
        super().__init__(daemon=True)
        self.told: dict[bytes, int] = {}
        self.sent: list[bytes] = []
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._number = number
        self._port = port

    def run(self) -> None:
        try:
            turn = 0
            while not self.stopping.is_set():
                turn += 1
                if turn % 2:
                    self._put_own([b"%d-%d-%d" % (self._number, turn, place) for place in range(3)])
                else:
                    # A new producer id each time, so that only the later retries settle the last batch.
                    self._put_made([MadeId(10**6 * self._number + turn, 0, 0, 0, place) for place in range(3)])
        except BaseException as failure:
            self.failure = failure

    def _put_own(self, ids: list[bytes]) -> None:
        self._put(ids, batch_with_ids(*ids, timestamp=now_ms()), ids)

    def _put_made(self, made: Sequence[MadeId]) -> None:
        ids = [each.encode() for each in made]
        records = encode_batch(
            ids, timestamps=now_ms(), producer_id=made[0].producer_id, producer_epoch=0, base_sequence=0
        )
        self._put(ids, records, None)

    def _put(self, ids: list[bytes], records: bytearray, beside: list[bytes] | None) -> None:
        self.sent += ids
        try:
            result = put("127.0.0.1", self._port, TOPIC, records, beside)
        except (OSError, EOFError):
            time.sleep(0.02)
            return
        assert result["error_code"] == 0 or ErrorCode.of(result["error_code"]).retriable, result
        if result["error_code"] == 0:
            self.told |= {each: result["base_offset"] + place for place, each in enumerate(ids)}


def retried(port: int, ids: Sequence[bytes]) -> list[int]:
    """Retry these ids in a new process and return their offsets."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-m", "faults.retrying", "127.0.0.1", str(port), TOPIC],
        input=b"\n".join(ids),
        stdout=subprocess.PIPE,
        check=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": paths},
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_retried_message_ids_are_stored_once_after_a_killed_broker(tmp_path: Path, round_number: int) -> None:
    random = Random(f"{SEED} {round_number} ids")
    with RealBroker(tmp_path / "data", extra_args=("--segment-bytes", "65536")) as broker:
        partitions = create_topic(broker.bootstrap, TOPIC, 1)
        port = int(broker.bootstrap.rpartition(":")[2])
        writers = [Writer(number, port) for number in range(1, WRITERS + 1)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            wanted = len(writers[0].told) + random.randrange(3, 60)
            while len(writers[0].told) < wanted and writers[0].is_alive():
                time.sleep(0.005)
            broker.kill()
            broker.start()
        for writer in writers:
            writer.stopping.set()
            writer.join(60)
            assert writer.failure is None
        told = {each: offset for writer in writers for each, offset in writer.told.items()}
        sent = [each for writer in writers for each in writer.sent]
        in_doubt = [each for each in sent if each not in told]
        some_told = random.sample(sorted(told), min(40, len(told)))
        assert in_doubt, "some puts were in flight when the broker was killed"
        found = told | dict(zip(in_doubt, retried(port, in_doubt), strict=True))
        assert retried(port, some_told) == [told[each] for each in some_told]
        broker.restart()
        assert retried(port, in_doubt) == [found[each] for each in in_doubt]
        (log,) = final_logs(broker.bootstrap, partitions).values()
        assert sorted(found) == sorted(value for _, value in log.records), "no message is lost or stored twice"
        assert all(found[value] == offset for offset, value in log.records)

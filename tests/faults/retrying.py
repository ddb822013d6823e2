"""Retries message ids in a process without further state: puts each id until the broker returns its offset.

Usage: python -m faults.retrying HOST PORT TOPIC, with one id per line on standard input; writes their offsets.
"""

import sys
import time

from builders.batches import batch_with_ids
from interop.wire import Fields, ask
from millstream.model.errors import ErrorCode

PATIENCE_S = 90.0


def put(host: str, port: int, topic: str, records: bytes | bytearray, ids: list[bytes] | None) -> Fields:
    """Put one batch and return its result; ConnectionError or EOFError if the broker is down."""
    entries = [{"partition": 0, "hash": 0, "records": bytes(records), "message_ids": ids}]
    fields = {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": entries}]}
    result: Fields = ask(host, port, "Puts", 0, fields)["topics"][0]["entries"][0]
    return result


def now_ms() -> int:
    return int(time.time() * 1000)


def place_of(host: str, port: int, topic: str, message_id: bytes) -> int:
    """Put a message with this id (and the id as value) until it is stored, and return its offset."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            result = put(host, port, topic, batch_with_ids(message_id, timestamp=now_ms()), [message_id])
        except (OSError, EOFError):
            assert time.monotonic() < deadline_s, "the broker did not come back in time"
            time.sleep(0.05)
            continue
        code = ErrorCode.of(result["error_code"])
        if code is ErrorCode.NONE:
            return int(result["base_offset"])
        if code is ErrorCode.DUPLICATE_MESSAGE_ID:
            return int(result["known"][0]["offset"])
        assert code.retriable, result
        time.sleep(0.05)


if __name__ == "__main__":
    for line in sys.stdin.buffer.read().splitlines():
        sys.stdout.write(f"{place_of(sys.argv[1], int(sys.argv[2]), sys.argv[3], line)}\n")

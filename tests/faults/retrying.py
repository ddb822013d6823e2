"""A process that knows message ids and nothing else: puts each of them until it is told where the message is.

Usage: python -m faults.retrying HOST PORT TOPIC, with one id a line on the standard input; writes their offsets.
"""

import sys
import time

from builders.batches import batch_with_ids
from interop.wire import Fields, ask
from millstream.model.errors import ErrorCode

PATIENCE_S = 90.0


def put(host: str, port: int, topic: str, records: bytes | bytearray, ids: list[bytes] | None) -> Fields:
    """What became of one batch; ConnectionError or EOFError when the broker is away."""
    entries = [{"partition": 0, "hash": 0, "records": bytes(records), "message_ids": ids}]
    fields = {"acks": -1, "timeout_ms": 30_000, "topics": [{"name": topic, "entries": entries}]}
    result: Fields = ask(host, port, "Puts", 0, fields)["topics"][0]["entries"][0]
    return result


def now_ms() -> int:
    return int(time.time() * 1000)


def place_of(host: str, port: int, topic: str, message_id: bytes) -> int:
    """Where the message of an id is, stored now or before; its value is the id."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            result = put(host, port, topic, batch_with_ids(message_id, timestamp=now_ms()), [message_id])
        except (OSError, EOFError):
            assert time.monotonic() < deadline_s, "the broker does not come back"
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

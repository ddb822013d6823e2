"""Records the requests and answers of the clients of one run, from several threads, for the checker."""

import threading
from collections.abc import Sequence

from millstream.model.names import TopicPartition
from millstream.testing.simulation.checker import Violation, check
from millstream.testing.simulation.history import FinalLog, History, RecordedRead, RecordedWrite, WriteOutcome


class SharedHistory:
    """A history that several threads write in order, because each entry is made under one lock."""

    def __init__(self) -> None:
        self._history = History()
        self._lock = threading.Lock()

    def ask_write(self, producer: str, partition: TopicPartition, values: Sequence[bytes]) -> RecordedWrite:
        with self._lock:
            return self._history.ask_write(producer, partition, values)

    def stored(self, write: RecordedWrite, base_offset: int) -> None:
        with self._lock:
            self._history.stored(write, base_offset)

    def refused(self, write: RecordedWrite, detail: str) -> None:
        with self._lock:
            self._history.refused(write, detail)

    def abandoned(self, write: RecordedWrite, detail: str) -> None:
        with self._lock:
            self._history.abandoned(write, detail)

    def ask_read(self, reader: str, partition: TopicPartition, offset: int) -> RecordedRead:
        with self._lock:
            return self._history.ask_read(reader, partition, offset)

    def answered(self, read: RecordedRead, records: Sequence[tuple[int, bytes]], log_start: int, log_end: int) -> None:
        with self._lock:
            self._history.answered(read, records, log_start, log_end=log_end)

    def crashed(self) -> None:
        with self._lock:
            self._history.crashed(power_loss=False)

    def acknowledged(self, producer: str = "") -> int:
        """Return the number of acknowledged messages of the producers whose names start with `producer`."""
        with self._lock:
            return sum(
                len(write.values)
                for write in self._history.writes
                if write.outcome is WriteOutcome.STORED and write.producer.startswith(producer)
            )

    def given_up(self) -> list[str]:
        """Return the errors with which producers gave up on messages."""
        with self._lock:
            return [f"{write.producer}: {write.detail}" for write in self._history.writes if write.abandoned]

    def violations(self, final: dict[TopicPartition, FinalLog]) -> list[Violation]:
        """Run the checker."""
        with self._lock:
            return check(self._history, final)

    def assert_kept(self, final: dict[TopicPartition, FinalLog]) -> None:
        """Assert that no acknowledged or read message is lost, duplicated, altered or out of order."""
        violations = self.violations(final)
        assert not violations, "\n".join(map(str, violations[:20]))

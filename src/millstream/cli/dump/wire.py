"""Fetches a partition's log from a broker for `millstream dump`, batch by batch."""

from millstream.cli.dump.account import BatchPrinter, DumpAccount, LogProblem, PrintRange, opened
from millstream.cli.dump.lines import DumpPartition
from millstream.cli.messages.topic_reads import END_WAIT_MS, ReadSpan, find_spans
from millstream.cli.positions import Position
from millstream.records.header import BatchHeader, CorruptBatch, each_batch
from millstream.sdk.responses import FetchedBatches
from millstream.sdk.wire_client import WireClient


class WireDump:
    """Fetches the requested part of a topic and passes its batches to the printer."""

    def __init__(
        self, client: WireClient, topic: str, timeout_s: float, printer: BatchPrinter, *, verify: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._timeout_s = timeout_s
        self._printer = printer
        self._opens = verify or printer.wants_records

    async def spans(self, partitions: list[int], first: Position, last: Position) -> list[ReadSpan]:
        return await find_spans(self._client, self._topic, partitions, first, last, self._timeout_s)

    async def examine(self, span: ReadSpan) -> DumpAccount:
        """Reads one partition. Returns its counts and problems."""
        where = DumpPartition(self._topic, span.partition)
        account = DumpAccount(where)
        offset = span.start
        while offset < span.end and not self._printer.is_done:
            answer = await self._client.fetch_batches(
                self._topic, span.partition, offset, max_wait_ms=END_WAIT_MS, timeout_s=self._timeout_s
            )
            following = self._process_response(answer, account, offset, PrintRange(span.start, span.end))
            if following == offset:
                if offset >= answer.high_watermark:
                    break  # The log has become shorter since the read began.
                text = "the broker returned no complete batch for this offset; the rest of the partition is skipped"
                account.problems.append(LogProblem(f"{self._topic}-{span.partition}, offset {offset}", text))
                break
            offset = following
        return account

    def _process_response(self, answer: FetchedBatches, account: DumpAccount, offset: int, wanted: PrintRange) -> int:
        """Processes the batches of one response. Returns the next offset."""
        try:
            for position, header in each_batch(answer.batches):
                if header.next_offset <= offset:
                    continue
                self._batch(answer.batches, position, header, account, wanted)
                offset = header.next_offset
                if offset >= wanted.end or self._printer.is_done:
                    break
        except CorruptBatch as error:
            account.problems.append(LogProblem(f"{account.where.topic}-{account.where.partition}", error.detail))
        return offset

    def _batch(
        self, batches: memoryview, position: int, header: BatchHeader, account: DumpAccount, wanted: PrintRange
    ) -> None:
        where = account.where
        try:
            records = opened(batches, position, header) if self._opens else []
        except CorruptBatch as error:
            span = f"offsets {header.base_offset} to {header.last_offset}"
            account.problems.append(LogProblem(f"{where.topic}-{where.partition}, {span}", error.detail))
            return
        account.saw(header)
        self._printer.take(where, header, records, wanted)

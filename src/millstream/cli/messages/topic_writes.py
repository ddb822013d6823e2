"""Sends chunks of messages one after the other, and summarizes how many were stored and where."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from millstream.cli.messages.message_input import BadMessageError, Header, MessageChunk, MessageToPut, ReadAhead
from millstream.cli.output import counted, print_json, print_line
from millstream.cli.progress import ProgressBar
from millstream.cli.session import connected, producing
from millstream.cli.suggestions import topic_expected
from millstream.model.errors import MillstreamError
from millstream.model.message_id import ID_HEADER
from millstream.sdk.aio.producer import AsyncProducer
from millstream.sdk.producing.chunk import PutResult, Receipt
from millstream.sdk.producing.failures import OutcomeUnknownError, UnstoredError
from millstream.sdk.producing.options import ProducerSettings
from millstream.seams.clock import SystemClock

_PARTITIONS_LISTED = 4

T = TypeVar("T")

Outcome = PutResult | MillstreamError
"""Partition and offset of a stored message, or the error of one that was refused or whose outcome is unknown."""


class WriteOptions(NamedTuple):
    """Options for writing messages."""

    topic: str
    options: ProducerSettings
    hash: int | None = None
    """Chooses the partition of all messages: the hash modulo the number of partitions."""


def write(
    portions: Iterator[MessageChunk], how: WriteOptions, bootstrap: str, *, total_bytes: int | None, as_json: bool
) -> None:
    """Sends all messages and prints a summary. An error message includes how many were stored before it."""
    stored = StoredSummary(how.topic, as_json=as_json, answered=how.options.acks != 0)
    typed = sys.stdin is not None and sys.stdin.isatty() and total_bytes is None
    bar = ProgressBar(how.topic, total_bytes, in_bytes=True, wanted=not as_json and not typed)
    with connected(bootstrap, how.options.timeout_s) as session, topic_expected(session, how.topic), bar:
        ahead = ReadAhead(portions)
        try:
            with producing(session, how.options) as producer:
                for portion in ahead:
                    take_account(session.run(send(producer, portion.messages, how.topic, how.hash)), portion, stored)
                    bar.advance(portion.size_bytes)
        except MillstreamError as error:
            if stored.count or isinstance(error, BadMessageError):
                error.detail += f"; {stored.so_far}"
            raise
        except KeyboardInterrupt:
            stored.tell()
            raise
        finally:
            ahead.close()
    stored.tell()


async def send(
    producer: AsyncProducer, messages: Sequence[MessageToPut], topic: str, by_hash: int | None = None
) -> list[Outcome]:
    """Sends the messages and returns the outcome of each. A message with an id header is stored once under that id."""
    receipts = producer.put_many(
        topic,
        [message.value for message in messages],
        keys=_column([message.key for message in messages]),
        headers=_column([_headers(message) for message in messages]),
        timestamps=_times(messages),
        partition=_column([message.partition for message in messages]),
        hashes=None if by_hash is None else [by_hash] * len(messages),
        message_ids=_column([_message_id(message) for message in messages]),
    )
    try:
        return list(await receipts)
    except UnstoredError:
        return [_outcome(receipt) for receipt in receipts]


def _column(cells: list[T | None]) -> list[T | None] | None:
    return cells if any(cell is not None for cell in cells) else None


def _headers(message: MessageToPut) -> list[Header] | None:
    return [each for each in message.headers if each[0] != ID_HEADER] or None


def _message_id(message: MessageToPut) -> bytes | None:
    return next((value or b"" for name, value in message.headers if name == ID_HEADER), None)


def _times(messages: Sequence[MessageToPut]) -> list[float] | None:
    if all(message.timestamp_ms is None for message in messages):
        return None
    now_ms = SystemClock().wall_ms()
    return [(now_ms if each.timestamp_ms is None else each.timestamp_ms) / 1000 for each in messages]


def _outcome(receipt: Receipt) -> Outcome:
    try:
        return receipt.result(0)
    except MillstreamError as error:
        return error


def take_account(outcomes: Sequence[Outcome], portion: MessageChunk, stored: "StoredSummary") -> None:
    """Adds the stored messages to the summary. Raises the error of the others, with the line of the first."""
    stored.add([each for each in outcomes if isinstance(each, PutResult)])
    failures = [(index, each) for index, each in enumerate(outcomes) if isinstance(each, MillstreamError)]
    if not failures:
        return
    first, error = failures[0]
    error = next((each for _, each in failures if isinstance(each, OutcomeUnknownError)), error)
    if len(outcomes) > 1:
        source, number = portion.origin(first)
        error.detail += f"; the first failed message is line {number} of {source}"
    raise error


@dataclass(slots=True)
class _Share:
    """Number of messages stored in one partition, with the first and the last offset."""

    count: int
    first: int
    last: int


class StoredSummary:
    """Counts the stored messages (with acks=0, the sent ones) for the summary."""

    def __init__(self, topic: str, *, as_json: bool, answered: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self._answered = answered
        self._shares: dict[int, _Share] = {}
        self.count = 0
        self._duplicates = 0

    @property
    def so_far(self) -> str:
        """Text with the number of messages that were stored before an error."""
        if self.count == 0:
            return "nothing was stored" if self._answered else "nothing was sent"
        verb = "stored" if self._answered else "sent"
        return f"{counted(self.count, 'message')} {'was' if self.count == 1 else 'were'} {verb}"

    def add(self, places: Sequence[PutResult]) -> None:
        self.count += len(places)
        self._duplicates += sum(place.duplicate for place in places)
        for place in places:
            share = self._shares.get(place.partition)
            if share is None:
                self._shares[place.partition] = _Share(1, place.offset, place.offset)
            else:
                share.count += 1
                share.last = place.offset
        if self._as_json and places:
            for place in places:
                where = {"topic": place.topic, "partition": place.partition, "offset": place.offset}
                print_json({**where, "duplicate": place.duplicate})
            sys.stdout.flush()

    def tell(self) -> None:
        if not self._as_json:
            print_line(self._summary())

    def _summary(self) -> str:
        if self._duplicates:
            verb = "was" if self._duplicates == 1 else "were"
            return f"{self._places()} {counted(self._duplicates, 'message')} {verb} stored before, under the same id."
        return self._places()

    def _places(self) -> str:
        if not self._answered:
            return f"Sent {counted(self.count, 'message')} to {self._topic}."
        head = f"Stored {counted(self.count, 'message')} in {self._topic}"
        shares = sorted(self._shares.items())
        if not shares:
            return f"{head}."
        if len(shares) == 1:
            ((partition, share),) = shares
            begin = f"Stored in {self._topic}" if self.count == 1 else head
            return f"{begin}, partition {partition}{_at(share)}."
        if len(shares) > _PARTITIONS_LISTED:
            return f"{head}, in {len(shares)} partitions."
        return f"{head}: {'; '.join(f'{share.count} in partition {number}{_at(share)}' for number, share in shares)}."


def _at(share: _Share) -> str:
    if share.first < 0 or share.last < 0:
        return ""
    if share.count == 1:
        return f", at offset {share.first}"
    if share.last - share.first == share.count - 1:
        return f", at offsets {share.first} to {share.last}"
    return f", between offsets {share.first} and {share.last}"

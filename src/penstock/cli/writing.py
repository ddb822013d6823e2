"""Sends portions of messages one after the other, and keeps account of what was stored where."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cli.messages import BadMessageError, Message, Portion, ReadAhead
from penstock.cli.nearest import topic_expected
from penstock.cli.output import counted, print_json, print_line
from penstock.cli.progress import ProgressBar
from penstock.cli.session import connected
from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.sdk.client import WireClient
from penstock.sdk.putting import Place, PutError

_PARTITIONS_TOLD = 4


class How(NamedTuple):
    """How messages are to be written."""

    topic: str
    compression: str
    acks: int
    timeout_s: float


def write(portions: Iterator[Portion], how: How, bootstrap: str, *, total_bytes: int | None, as_json: bool) -> None:
    """Send everything and tell what became of it; an error tells how much had been stored before it."""
    stored = Stored(how.topic, as_json=as_json, answered=how.acks != 0)
    typed = sys.stdin is not None and sys.stdin.isatty() and total_bytes is None
    bar = ProgressBar(how.topic, total_bytes, in_bytes=True, wanted=not as_json and not typed)
    with connected(bootstrap, how.timeout_s) as session, topic_expected(session, how.topic), bar:
        ahead = ReadAhead(portions)
        try:
            for portion in ahead:
                stored.add(session.run(send(session.client, portion.messages, how)))
                bar.advance(portion.size_bytes)
        except PenstockError as error:
            if isinstance(error, PutError):
                name_first(error, portion, stored)
            if stored.count or isinstance(error, BadMessageError):
                error.detail += f"; {stored.so_far}"
            raise
        except KeyboardInterrupt:
            stored.tell()
            raise
        finally:
            ahead.close()
        if how.acks == 0:
            # Nobody answers for these; the answer to a later question shows that the broker has read them.
            session.run(session.client.metadata([], timeout_s=how.timeout_s))
    stored.tell()


async def send(client: WireClient, messages: Sequence[Message], how: How) -> list[Place]:
    """Store the messages; PutError with the place of each that was."""
    shares: dict[int | None, list[int]] = {}
    for index, message in enumerate(messages):
        shares.setdefault(message.partition, []).append(index)
    places: list[Place | None] = [None] * len(messages)
    failures: list[PutError] = []

    async def put(partition: int | None, indexes: list[int]) -> None:
        found: Sequence[Place | None]
        try:
            found = await _put(client, [messages[index] for index in indexes], partition, how)
        except PutError as error:
            failures.append(error)
            found = error.places
        for index, place in zip(indexes, found, strict=True):
            places[index] = place

    await asyncio.gather(*(put(partition, indexes) for partition, indexes in shares.items()))
    if failures:
        worst = next((error for error in failures if error.outcome_unknown), failures[0])
        worst.places = tuple(places)
        raise worst
    return [place for place in places if place is not None]


async def _put(client: WireClient, messages: list[Message], partition: int | None, how: How) -> list[Place]:
    now_ms = SystemClock().wall_ms()
    return await client.put(
        how.topic,
        [message.value for message in messages],
        keys=[message.key for message in messages] if any(message.key is not None for message in messages) else None,
        headers=[message.headers for message in messages] if any(message.headers for message in messages) else None,
        timestamps_ms=[now_ms if message.timestamp_ms is None else message.timestamp_ms for message in messages],
        partition=partition,
        compression=how.compression,
        acks=how.acks,
        timeout_s=how.timeout_s,
    )


def name_first(error: PutError, portion: Portion, stored: "Stored") -> None:
    """Add to the error which message is the first it concerns, and to the account those that it does not concern."""
    if len(portion.messages) > 1:
        source, number = portion.origin(error.places.index(None))
        error.detail += f"; the first it concerns is line {number} of {source}"
    stored.add([place for place in error.places if place is not None])


@dataclass(slots=True)
class _Share:
    """What one partition got."""

    count: int
    first: int
    last: int


class Stored:
    """What was stored, or only sent where nobody answers for it, for the line at the end."""

    def __init__(self, topic: str, *, as_json: bool, answered: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self._answered = answered
        self._shares: dict[int, _Share] = {}
        self.count = 0

    @property
    def so_far(self) -> str:
        """How many got there although it came to an error."""
        if self.count == 0:
            return "nothing was stored" if self._answered else "nothing was sent"
        verb = "stored" if self._answered else "sent"
        return f"{counted(self.count, 'message')} {'was' if self.count == 1 else 'were'} {verb}"

    def add(self, places: Sequence[Place]) -> None:
        self.count += len(places)
        for place in places:
            share = self._shares.get(place.partition)
            if share is None:
                self._shares[place.partition] = _Share(1, place.offset, place.offset)
            else:
                share.count += 1
                share.last = place.offset
        if self._as_json and places:
            for place in places:
                print_json({"topic": place.topic, "partition": place.partition, "offset": place.offset})
            sys.stdout.flush()

    def tell(self) -> None:
        if not self._as_json:
            print_line(self._account())

    def _account(self) -> str:
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
        if len(shares) > _PARTITIONS_TOLD:
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

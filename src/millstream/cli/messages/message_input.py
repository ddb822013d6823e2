"""From what is given to `put` to messages: arguments, files and standard input, in portions that fit into memory."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from millstream.cli.failures import usage_error
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.limits import REQUEST_BYTES_MAX

READ_BYTES = 64 * 1024
AHEAD = 32
"""So many portions are read ahead while others are being sent."""

SEND_BYTES = 4 * 1024 * 1024
STANDARD_INPUT = "-"

Header = tuple[str, bytes | None]


class MessageToPut(NamedTuple):
    """One message; what is None of it is left to the flags, the broker or the clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class MessageChunk:
    """Messages that were there at the same time, and where they came from."""

    messages: list[MessageToPut] = field(default_factory=list)
    runs: list[tuple[int, str, int]] = field(default_factory=list)
    """From which index on they are of which source, and that message's number in it, from 1."""
    size_bytes: int = 0
    """Of the source, so that it can be told how much of it is left."""

    def add(self, other: "MessageChunk") -> None:
        self.runs += [(len(self.messages) + index, source, number) for index, source, number in other.runs]
        self.messages += other.messages
        self.size_bytes += other.size_bytes

    def origin(self, index: int) -> tuple[str, int]:
        """The source of a message, and its number there."""
        first, source, number = max(run for run in self.runs if run[0] <= index)
        return source, number + index - first


class BadMessageError(MillstreamError):
    """Something given is no message; whatever came before it may have been sent."""

    def __init__(self, source: str, number: int, problem: str) -> None:
        super().__init__(ErrorCode.INVALID_SETTING, f"{source}, line {number}: {problem}")


Parse = Callable[[bytes], MessageToPut]
"""From one line; ValueError says what is wrong with it."""


def given_messages(values: Sequence[bytes], parse: Parse) -> Iterator[MessageChunk]:
    """The arguments, which are messages as lines would be."""
    yield _parsed("the arguments", 1, values, sum(map(len, values)), parse)


def messages_of(paths: Sequence[str], parse: Parse, *, whole: bool) -> Iterator[MessageChunk]:
    """The lines of these files, one after the other; with `whole`, each file is one message."""
    for path in paths:
        with _opened(path) as (name, read):
            if whole:
                data = _read_whole(name, read)
                yield _parsed(name, 1, [data], len(data), parse)
                continue
            number = 1
            for lines, size_bytes in lines_as_they_come(name, read):
                yield _parsed(name, number, lines, size_bytes, parse)
                number += len(lines)


def _parsed(source: str, number: int, lines: Sequence[bytes], size_bytes: int, parse: Parse) -> MessageChunk:
    portion = MessageChunk(runs=[(0, source, number)], size_bytes=size_bytes)
    for line in lines:
        try:
            portion.messages.append(parse(line))
        except ValueError as error:
            bad = BadMessageError(source, number + len(portion.messages), str(error))
            raise _Interrupted(portion, bad) from None
    return portion


class _Interrupted(Exception):  # noqa: N818 - it carries an error, and what is still good before it
    def __init__(self, portion: MessageChunk, error: MillstreamError) -> None:
        super().__init__(error.detail)
        self.portion = portion
        self.error = error


def lines_as_they_come(name: str, read: Callable[[int], bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Lines in portions, with the bytes read for them, from a `read` that gives what is there and nothing at the end:
    no line waits for the next."""
    begun: list[bytes] = []
    begun_bytes = read_bytes = 0
    while data := read(READ_BYTES):
        read_bytes += len(data)
        first, *others = data.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > REQUEST_BYTES_MAX:
            raise _too_large(f"a line of {name}")
        if others:
            *whole, rest = others
            yield [b"".join(begun), *whole], read_bytes
            begun, begun_bytes, read_bytes = [rest], len(rest), 0
    if begun_bytes:
        yield [b"".join(begun)], read_bytes


def _read_whole(name: str, read: Callable[[int], bytes]) -> bytes:
    parts: list[bytes] = []
    left_bytes = REQUEST_BYTES_MAX
    while data := read(READ_BYTES):
        parts.append(data)
        left_bytes -= len(data)
        if left_bytes < 0:
            raise _too_large(name)
    return b"".join(parts)


def _too_large(what: str) -> MillstreamError:
    return MillstreamError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{what} is longer than {REQUEST_BYTES_MAX} bytes, which no broker takes"
    )


@contextmanager
def _opened(path: str) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    if path == STANDARD_INPUT:
        descriptor = sys.stdin.fileno()
        yield "standard input", lambda size: os.read(descriptor, size)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise usage_error(f"--file {path}: {error.strerror}") from None
    try:
        yield path, lambda size: os.read(descriptor, size)
    except IsADirectoryError:
        raise usage_error(f"--file {path}: it is a directory") from None
    finally:
        os.close(descriptor)


_Item = MessageChunk | BaseException | None
"""A portion, what ended the reading, or None at its end."""


class ReadAhead:
    """Portions, read and parsed in a thread of their own while those before them are sent.

    What has come meanwhile comes as one portion. An error comes after everything that was good before it.
    """

    def __init__(self, portions: Iterator[MessageChunk]) -> None:
        self._queue: Queue[_Item] = Queue(AHEAD)
        self._is_closed = False
        # A daemon, since a read from a terminal ends only with the next line.
        Thread(target=self._run, args=(portions,), daemon=True).start()

    def __iter__(self) -> Iterator[MessageChunk]:
        ended = False
        while not ended:
            item: _Item | _Later = self._queue.get()
            portion = MessageChunk()
            while isinstance(item, MessageChunk):
                portion.add(item)
                item = self._next(portion)
            if portion.messages or portion.size_bytes:
                yield portion
            if isinstance(item, BaseException):
                raise item
            ended = item is None

    def close(self) -> None:
        """Read no further."""
        self._is_closed = True
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            pass

    def _next(self, portion: MessageChunk) -> "_Item | _Later":
        if portion.size_bytes >= SEND_BYTES:
            return _LATER
        try:
            return self._queue.get_nowait()
        except Empty:
            return _LATER

    def _run(self, portions: Iterator[MessageChunk]) -> None:
        try:
            for portion in portions:
                self._queue.put(portion)
                if self._is_closed:
                    return
        except _Interrupted as stop:
            self._queue.put(stop.portion)
            self._queue.put(stop.error)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)


class _Later:
    """Nothing more is there yet."""


_LATER = _Later()

"""Reads the messages of `put` from arguments, files or standard input, in chunks that fit into memory."""

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
"""Number of chunks that are read ahead while earlier ones are sent."""

SEND_BYTES = 4 * 1024 * 1024
STANDARD_INPUT = "-"

Header = tuple[str, bytes | None]


class MessageToPut(NamedTuple):
    """One message. Fields that are None are set by the flags, the broker or the clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class MessageChunk:
    """Messages that were available at the same time, and their sources."""

    messages: list[MessageToPut] = field(default_factory=list)
    runs: list[tuple[int, str, int]] = field(default_factory=list)
    """For each source: the index of its first message here, its name, and that message's line number (from 1)."""
    size_bytes: int = 0
    """Number of bytes read from the sources, for the progress bar."""

    def add(self, other: "MessageChunk") -> None:
        self.runs += [(len(self.messages) + index, source, number) for index, source, number in other.runs]
        self.messages += other.messages
        self.size_bytes += other.size_bytes

    def origin(self, index: int) -> tuple[str, int]:
        """Returns the source of a message, and its line number there."""
        first, source, number = max(run for run in self.runs if run[0] <= index)
        return source, number + index - first


class BadMessageError(MillstreamError):
    """An input line is not a valid message. Messages before it may have been sent."""

    def __init__(self, source: str, number: int, problem: str) -> None:
        super().__init__(ErrorCode.INVALID_SETTING, f"{source}, line {number}: {problem}")


Parse = Callable[[bytes], MessageToPut]
"""Parses one line to a message. Raises ValueError with the problem."""


def given_messages(values: Sequence[bytes], parse: Parse) -> Iterator[MessageChunk]:
    """Yields the arguments, parsed like lines."""
    yield _parsed("the arguments", 1, values, sum(map(len, values)), parse)


def messages_of(paths: Sequence[str], parse: Parse, *, whole: bool) -> Iterator[MessageChunk]:
    """Yields the lines of the files as messages, file by file. With `whole`, each file is one message."""
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
    chunk = MessageChunk(runs=[(0, source, number)], size_bytes=size_bytes)
    for line in lines:
        try:
            chunk.messages.append(parse(line))
        except ValueError as error:
            bad = BadMessageError(source, number + len(chunk.messages), str(error))
            raise _Interrupted(chunk, bad) from None
    return chunk


class _Interrupted(Exception):  # noqa: N818 - it carries an error and the valid messages before it
    def __init__(self, chunk: MessageChunk, error: MillstreamError) -> None:
        super().__init__(error.detail)
        self.chunk = chunk
        self.error = error


def lines_as_they_come(name: str, read: Callable[[int], bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Yields complete lines as soon as they are read, with the number of bytes read for them.

    `read` returns the bytes that are available, and none at the end of the input.
    """
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
        ErrorCode.MESSAGE_TOO_LARGE, f"{what} is longer than {REQUEST_BYTES_MAX} bytes, the maximum size of a request"
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
"""A chunk, the exception that ended the input, or None at its end."""


class ReadAhead:
    """Reads and parses chunks in a thread while earlier chunks are sent.

    Iteration merges all chunks that are ready into one. An error is raised after the valid messages before it.
    """

    def __init__(self, portions: Iterator[MessageChunk]) -> None:
        self._queue: Queue[_Item] = Queue(AHEAD)
        self._is_closed = False
        # A daemon thread, because a read from a terminal returns only at the end of the next line.
        Thread(target=self._run, args=(portions,), daemon=True).start()

    def __iter__(self) -> Iterator[MessageChunk]:
        ended = False
        while not ended:
            item: _Item | _Later = self._queue.get()
            chunk = MessageChunk()
            while isinstance(item, MessageChunk):
                chunk.add(item)
                item = self._next(chunk)
            if chunk.messages or chunk.size_bytes:
                yield chunk
            if isinstance(item, BaseException):
                raise item
            ended = item is None

    def close(self) -> None:
        """Stops reading."""
        self._is_closed = True
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            pass

    def _next(self, chunk: MessageChunk) -> "_Item | _Later":
        if chunk.size_bytes >= SEND_BYTES:
            return _LATER
        try:
            return self._queue.get_nowait()
        except Empty:
            return _LATER

    def _run(self, portions: Iterator[MessageChunk]) -> None:
        try:
            for chunk in portions:
                self._queue.put(chunk)
                if self._is_closed:
                    return
        except _Interrupted as stop:
            self._queue.put(stop.chunk)
            self._queue.put(stop.error)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)


class _Later:
    """Marks that no further chunk is ready yet."""


_LATER = _Later()

"""Cuts the received bytes of a connection into frames and avoids copies of large frames.

Small frames arrive several to a read. They are read into one staging buffer, which all connections share, and copied
out of it. The event loop reads and processes the buffer in one step, so connections do not disturb each other. A frame
that does not fit gets a buffer of its own, and the rest of it is read directly into that buffer. If the last frame of a
connection was large, the next read takes only the four bytes of the size. The whole frame is then read without a copy.

A peer cannot allocate memory by announcing a large frame. Its buffer starts small, unless the peer has sent frames of
that size before, and grows as data arrives. The first two bytes of a frame name the API. A frame that exceeds the size
limit of its API is refused before its buffer grows.

Invariant: either `_frame` is None and `_head` holds the first bytes (fewer than four) of the next size, or `_frame`
holds `filled` bytes of a frame of `_size` bytes. In that case `_held` bytes are counted in its pool, and once the frame
is admitted `_held` equals `_size`.
"""

from collections import deque
from collections.abc import Callable

from millstream.broker.net.memory_limits import MEDIUM_FRAME_BYTES_MAX, SMALL_FRAME_BYTES_MAX, MemoryLimits, MemoryPool
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.process.tls_detection import ADVICE, is_tls_handshake
from millstream.records.record_decoder import room
from millstream.wire.framing import SIZE, SIZE_BYTES
from millstream.wire.malformed import MalformedMessageError

STAGING_BYTES = SMALL_FRAME_BYTES_MAX
LARGE_FROM_BYTES = 32 * 1024
"""Frames of at least this size are cheaper to receive directly than to copy out of the staging buffer."""

FIRST_STEP_BYTES = 16 * 1024
SHORT_BYTES = 4 * 1024
"""Size of a read while frames wait for memory: enough for most requests, and little to hold before admission."""

WHOLE_BYTES_MAX = MEDIUM_FRAME_BYTES_MAX
_KEY_BYTES = 2


class TlsClientError(MalformedMessageError):
    """A TLS handshake arrived instead of the size of a frame. As a size, it would exceed every limit."""

    def __init__(self) -> None:
        super().__init__(ADVICE)


class StagingBuffer:
    """The receive buffer that all connections of one listener share."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(STAGING_BYTES))
        self.size_only = self.view[:SIZE_BYTES]
        self.short = self.view[:SHORT_BYTES]


class Receiver:
    """Receives the frames of one connection. `when_free` is called once memory for a waiting frame is free."""

    def __init__(
        self,
        staging: StagingBuffer,
        memory: MemoryLimits,
        when_free: Callable[[], None],
        bytes_max_of: Callable[[int], int],
    ) -> None:
        """`bytes_max_of` returns the maximum size of a request with the given API key."""
        self.frames: deque[bytearray] = deque()
        """Complete frames in order, without their size field."""
        self.needs_room = False
        """True while the current frame waits for memory of `MemoryLimits`. Reading must pause."""
        self.begun = 0
        """Number of frames that arrived in more than one read, so also the number of the current frame."""
        self.filled = 0
        self.pool: MemoryPool = memory.small
        """The memory pool of the current frame."""
        self._staging = staging
        self._memory = memory
        self._when_free = when_free
        self._bytes_max_of = bytes_max_of
        self._head = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._held = 0
        self._is_admitted = False
        self._is_known = False
        self._room = 0
        self._largest = FIRST_STEP_BYTES
        self._expects_large = False

    @property
    def is_partial(self) -> bool:
        """True if a frame has arrived only in part."""
        return self._frame is not None or bool(self._head)

    @property
    def holds_room(self) -> bool:
        """True if an incomplete frame holds memory."""
        return self._frame is not None

    def buffer(self) -> memoryview:
        """Return the buffer for the next read."""
        frame = self._frame
        if frame is None:
            staging, memory = self._staging, self._memory
            if self._expects_large or memory.small.waiting:
                # While memory is short, read only the size: data would have to be kept before its frame is admitted.
                return staging.size_only[: SIZE_BYTES - len(self._head)]
            return staging.short if memory.is_waited_for else staging.view
        if len(frame) < self._room:
            # The buffer can grow only here: in `received` the event loop still holds a view of it.
            frame = self._frame = _grown(frame, filled=self.filled, size=self._room)
        return memoryview(frame)[self.filled :]

    def received(self, count: int) -> None:
        """Process `count` bytes that were read into `buffer()`. Raises MalformedMessageError for an invalid size."""
        frame = self._frame
        if frame is None:
            view = self._staging.view
            if not self._head and count > SIZE_BYTES and SIZE.unpack_from(view)[0] == count - SIZE_BYTES:
                # Exactly one frame: the usual case of a client that waits for each response.
                self._memory.small.take(count - SIZE_BYTES)
                self.frames.append(bytearray(view[SIZE_BYTES:count]))
                self._expects_large = False
            else:
                self._cut(view[:count])
            return
        self.filled += count
        if not self._is_known:
            self._check_kind(frame)
        if self.filled == self._size:
            self._complete(frame)
        elif self.filled == self._room:
            self._make_room()

    def discard(self) -> None:
        """Return all memory, because the connection is closed."""
        if self._frame is not None:
            self._frame = None
            if self._is_admitted:
                self.pool.give_back(self._held)
            else:
                self.pool.drop(self._held, self._take_room)
        frames, self.frames = self.frames, deque()
        for frame in frames:
            self._memory.give_back(len(frame))

    def _cut(self, data: memoryview) -> None:
        if self._head:
            missing = SIZE_BYTES - len(self._head)
            self._head += bytes(data[:missing])
            data = data[missing:]
            if len(self._head) < SIZE_BYTES:
                return
            size = self._checked(self._head)
            self._head = b""
            if self._take_frame(size, data):
                data = data[size:]
            else:
                return
        position, end = 0, len(data)
        while end - position >= SIZE_BYTES:
            size = self._checked(data[position : position + SIZE_BYTES])
            position += SIZE_BYTES
            if not self._take_frame(size, data[position:]):
                return
            position += size
        self._head = bytes(data[position:])

    def _take_frame(self, size: int, data: memoryview) -> bool:
        """Take a frame that is complete in `data` and return True; or begin a frame with all of `data`."""
        if size <= len(data):
            self._memory.small.take(size)
            self.frames.append(bytearray(data[:size]))
            self._expects_large = False
            return True
        assert self._frame is None, "one frame is received at a time"
        assert not self._head, "a frame begins after its size"
        self._frame = bytearray(data)
        self._size = size
        self._is_known = self._is_admitted = False
        self.begun += 1
        self.filled = self._room = self._held = len(data)
        self.pool = self._memory.pool(size)
        # The received bytes are already in memory. Admission concerns only the bytes that follow.
        self.pool.hold(self._held)
        self._check_kind(self._frame)
        if size > self._largest and self._room < FIRST_STEP_BYTES and not self.pool.waiting:
            self._room = FIRST_STEP_BYTES
            self.pool.hold(FIRST_STEP_BYTES - self._held)
            self._held = FIRST_STEP_BYTES
        else:
            self._make_room()
        return False

    def _checked(self, head: bytes | memoryview) -> int:
        size: int = SIZE.unpack(head)[0]
        if not 0 <= size <= REQUEST_BYTES_MAX:
            if is_tls_handshake(head):
                raise TlsClientError
            raise MalformedMessageError(f"a frame of {size} bytes exceeds {REQUEST_BYTES_MAX} bytes")
        return size

    def _check_kind(self, frame: bytearray) -> None:
        """Refuse a frame that exceeds the size limit of its API, once the API key has arrived."""
        if self.filled < _KEY_BYTES:
            return
        self._is_known = True
        key = int.from_bytes(frame[:_KEY_BYTES], signed=True)
        most = self._bytes_max_of(key)
        if self._size > most:
            raise MalformedMessageError(f"a request of API key {key} with {self._size} bytes exceeds {most} bytes")

    def _complete(self, frame: bytearray) -> None:
        assert self._is_admitted, "a frame is admitted before it is complete"
        assert self._held == self._size == len(frame), "all bytes of a complete frame are counted"
        self.frames.append(frame)
        self._frame = None
        self._largest = max(self._largest, min(self._size, WHOLE_BYTES_MAX))
        self._expects_large = self._size >= LARGE_FROM_BYTES

    def _make_room(self) -> None:
        """Admit the frame if necessary and grow its buffer: to its full size, or step by step if it is very large."""
        if not self._is_admitted and not self.pool.ask(self._size - self._held, self._take_room):
            self.needs_room = True
            return
        self._admit()

    def _admit(self) -> None:
        self._is_admitted = True
        self._held = self._size
        self._room = min(self._size, max(WHOLE_BYTES_MAX, 2 * self._room))

    def _take_room(self) -> None:
        self.needs_room = False
        self._admit()
        self._when_free()


def _grown(frame: bytearray, *, filled: int, size: int) -> bytearray:
    if not filled:
        return room(size)
    try:
        frame += bytes(size - len(frame))
    except BufferError:
        # Another view of the old buffer still exists. A copy is better than a failed connection.
        frame = frame[:filled] + bytes(size - filled)
    return frame

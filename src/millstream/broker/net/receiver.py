"""Frames out of a stream, received straight into their final buffer wherever that saves a copy.

Small frames come many to a read: they are read into one buffer that all connections share (a read and its processing
are one step of the event loop, so nobody else sees it in between) and cut out of it. A frame that does not fit gets a
buffer of its own size, into which the rest of it is read directly. A connection that sends large frames is asked for
four bytes of size next, and then the whole frame comes into place without any copy.

Nobody gets memory for an announcement: the buffer begins small, unless the peer has sent frames of that size before,
and grows as the data arrives. What kind of request it is stands in its first two bytes, so one that is larger than its
kind may be is refused before there is room for more of it.

Invariant: either `_frame` is None and `_head` holds the fewer than four bytes known of the next size, or `_frame` holds
`filled` bytes of a frame of `_size` bytes, and `_held` bytes are counted for it in its pool; all of it once admitted.
"""

from collections import deque
from collections.abc import Callable

from millstream.broker.net.memory_limits import MEDIUM_FRAME_BYTES_MAX, SMALL_FRAME_BYTES_MAX, MemoryLimits, MemoryPool
from millstream.model.limits import REQUEST_BYTES_MAX
from millstream.records.record_decoder import room
from millstream.wire.framing import SIZE, SIZE_BYTES
from millstream.wire.malformed import MalformedMessageError

STAGING_BYTES = SMALL_FRAME_BYTES_MAX
LARGE_FROM_BYTES = 32 * 1024
"""Frames of at least this size are cheaper to receive into place than to copy out of the shared buffer."""

FIRST_STEP_BYTES = 16 * 1024
SHORT_BYTES = 4 * 1024
"""Read at once while memory is waited for: enough for most requests, little to hold before room was asked for it."""

WHOLE_BYTES_MAX = MEDIUM_FRAME_BYTES_MAX
_KEY_BYTES = 2


class StagingBuffer:
    """The buffer that the connections of one listener share."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(STAGING_BYTES))
        self.size_only = self.view[:SIZE_BYTES]
        self.short = self.view[:SHORT_BYTES]


class Receiver:
    """One connection's incoming half. `when_free` is called when room for the frame under way was found at last."""

    def __init__(
        self,
        staging: StagingBuffer,
        memory: MemoryLimits,
        when_free: Callable[[], None],
        bytes_max_of: Callable[[int], int],
    ) -> None:
        """`bytes_max_of` tells for the key of a request how large it may be."""
        self.frames: deque[bytearray] = deque()
        """Whole frames, in order, without their size."""
        self.needs_room = False
        """Nothing more can be received until there is room in `MemoryLimits`."""
        self.begun = 0
        """How many frames came in more than one piece."""
        self.filled = 0
        self.pool: MemoryPool = memory.small
        """Where the frame under way has its memory from."""
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
        """Whether a frame has begun that has not come to its end."""
        return self._frame is not None or bool(self._head)

    @property
    def holds_room(self) -> bool:
        """Whether a frame that has not come to its end has memory."""
        return self._frame is not None

    def buffer(self) -> memoryview:
        """Where the next bytes are to be read into."""
        frame = self._frame
        if frame is None:
            staging, memory = self._staging, self._memory
            if self._expects_large or memory.small.waiting:
                # While memory is short nothing is read that would have to be kept before room was asked for it.
                return staging.size_only[: SIZE_BYTES - len(self._head)]
            return staging.short if memory.is_waited_for else staging.view
        if len(frame) < self._room:
            # Grown here and not where the need is seen, because there the event loop still holds the old buffer.
            frame = self._frame = _grown(frame, self.filled, self._room)
        return memoryview(frame)[self.filled :]

    def received(self, count: int) -> None:
        """`count` bytes have been read into `buffer()`; MalformedMessageError when they announce what cannot be."""
        frame = self._frame
        if frame is None:
            view = self._staging.view
            if not self._head and count > SIZE_BYTES and SIZE.unpack_from(view)[0] == count - SIZE_BYTES:
                # One whole frame, which is what a client sends that waits for its answers.
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
        """The connection is over: give back what it holds."""
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
        """Take a frame that is whole in `data`; or begin one with all of `data` and tell that it goes on."""
        if size <= len(data):
            self._memory.small.take(size)
            self.frames.append(bytearray(data[:size]))
            self._expects_large = False
            return True
        self._frame = bytearray(data)
        self._size = size
        self._is_known = self._is_admitted = False
        self.begun += 1
        self.filled = self._room = self._held = len(data)
        self.pool = self._memory.pool(size)
        # What has arrived is there already; asking for room concerns what will be added to it.
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
            raise MalformedMessageError(f"a frame of {size} bytes was announced, {REQUEST_BYTES_MAX} are allowed")
        return size

    def _check_kind(self, frame: bytearray) -> None:
        """Refuse what its kind of request never is, as soon as the kind is known."""
        if self.filled < _KEY_BYTES:
            return
        self._is_known = True
        key = int.from_bytes(frame[:_KEY_BYTES], signed=True)
        most = self._bytes_max_of(key)
        if self._size > most:
            raise MalformedMessageError(
                f"a request with key {key} of {self._size} bytes was announced, {most} are allowed"
            )

    def _complete(self, frame: bytearray) -> None:
        self.frames.append(frame)
        self._frame = None
        self._largest = max(self._largest, min(self._size, WHOLE_BYTES_MAX))
        self._expects_large = self._size >= LARGE_FROM_BYTES

    def _make_room(self) -> None:
        """Have the frame admitted if it is not, and its buffer grow: at once if it is not large, else as it arrives."""
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


def _grown(frame: bytearray, filled: int, size: int) -> bytearray:
    if not filled:
        return room(size)
    try:
        frame += bytes(size - len(frame))
    except BufferError:
        # Somebody still holds what was handed out before; that may cost a copy, but not the connection.
        frame = frame[:filled] + bytes(size - filled)
    return frame

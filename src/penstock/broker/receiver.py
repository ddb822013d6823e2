"""Frames out of a stream, received straight into their final buffer wherever that saves a copy.

Small frames come many to a read: they are read into one buffer that all connections share (a read and its processing
are one step of the event loop, so nobody else sees it in between) and cut out of it. A frame that does not fit gets a
buffer of its own size, into which the rest of it is read directly. A connection that sends large frames is asked for
four bytes of size next, and then the whole frame comes into place without any copy.

Nobody gets memory for an announcement: the buffer begins small, unless the peer has sent frames of that size before,
and grows as the data arrives.

Invariant: either `_frame` is None and `_head` holds the fewer than four bytes known of the next size, or `_frame` holds
`_filled` bytes of a frame of `_size` bytes, and `_granted` of them are counted in `Memory`.
"""

from collections import deque
from collections.abc import Callable

from penstock.broker.memory import Memory
from penstock.model.limits import REQUEST_BYTES_MAX
from penstock.wire.framing import SIZE, SIZE_BYTES
from penstock.wire.malformed import MalformedError

STAGING_BYTES = 64 * 1024
LARGE_FROM_BYTES = 32 * 1024
"""Frames of at least this size are cheaper to receive into place than to copy out of the shared buffer."""

FIRST_STEP_BYTES = 16 * 1024
WHOLE_BYTES_MAX = 2 * 1024 * 1024


class Staging:
    """The buffer that the connections of one listener share."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(STAGING_BYTES))
        self.size_only = self.view[:SIZE_BYTES]


class Receiver:
    """One connection's incoming half. `when_free` is called when room for the frame under way was found at last."""

    def __init__(
        self,
        staging: Staging,
        memory: Memory,
        when_free: Callable[[], None],
        frame_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self.frames: deque[bytearray] = deque()
        """Whole frames, in order, without their size."""
        self.needs_room = False
        """Nothing more can be received until there is room in `Memory`."""
        self._staging = staging
        self._memory = memory
        self._when_free = when_free
        self._frame_bytes_max = frame_bytes_max
        self._head = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._granted = 0
        self._wanted = 0
        self._largest = FIRST_STEP_BYTES
        self._expects_large = False

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun that has not come to its end."""
        return self._frame is not None or bool(self._head)

    def buffer(self) -> memoryview:
        """Where the next bytes are to be read into."""
        frame = self._frame
        if frame is None:
            if self._expects_large or self._memory.is_waited_for:
                # While memory is short nothing is read that would have to be kept before room was asked for it.
                return self._staging.size_only[len(self._head) :]
            return self._staging.view
        if len(frame) < self._granted:
            # Grown here and not where the need is seen, because there the event loop still holds the old buffer.
            frame = self._frame = _grown(frame, self._filled, self._granted)
        return memoryview(frame)[self._filled :]

    def received(self, count: int) -> None:
        """`count` bytes have been read into `buffer()`; MalformedError when they announce what cannot be."""
        if self._frame is None:
            self._cut(self._staging.view[:count])
            return
        self._filled += count
        if self._filled == self._size:
            self._complete(self._frame)
        elif self._filled == self._granted:
            self._grant(self._next_step())

    def discard(self) -> None:
        """The connection is over: give back what it holds."""
        self._memory.forget(self._take_room)
        held = self._granted if self._frame is not None else 0
        held += sum(map(len, self.frames))
        self._frame = None
        self._granted = 0
        self.frames.clear()
        self._memory.give_back(held)

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
            self._memory.take(size)
            self.frames.append(bytearray(data[:size]))
            self._expects_large = False
            return True
        arrived = len(data)
        self._size = size
        self._filled = arrived
        # What has arrived is there already; asking for room concerns what will be added to it.
        self._granted = arrived
        self._memory.take(arrived)
        self._frame = bytearray(data)
        self._grant(size if size <= self._largest else min(size, max(FIRST_STEP_BYTES, arrived + 1)))
        return False

    def _checked(self, head: bytes | memoryview) -> int:
        size: int = SIZE.unpack(head)[0]
        if not 0 <= size <= self._frame_bytes_max:
            raise MalformedError(f"a frame of {size} bytes was announced, {self._frame_bytes_max} are allowed")
        return size

    def _complete(self, frame: bytearray) -> None:
        self.frames.append(frame)
        self._frame = None
        self._granted = 0
        self._largest = max(self._largest, min(self._size, WHOLE_BYTES_MAX))
        self._expects_large = self._size >= LARGE_FROM_BYTES

    def _next_step(self) -> int:
        return min(self._size, max(WHOLE_BYTES_MAX, 2 * self._granted))

    def _grant(self, target: int) -> None:
        more = target - self._granted
        self._wanted = target
        if more and not self._memory.ask(more, self._take_room):
            self.needs_room = True
            return
        self._granted = target

    def _take_room(self) -> None:
        self._granted = self._wanted
        self.needs_room = False
        self._when_free()


def _grown(frame: bytearray, filled: int, size: int) -> bytearray:
    if not filled:
        return bytearray(size)
    try:
        frame += bytes(size - len(frame))
    except BufferError:
        # Somebody still holds what was handed out before; that may cost a copy, but not the connection.
        frame = frame[:filled] + bytes(size - filled)
    return frame

"""Puts the responses of one connection into the order of its requests.

A ready response goes to the outbox at once if no earlier one is pending. All others wait here: the queue holds the
memory of the request and, once the response is ready, also counts the memory of the response.

A request may have to wait for open changes of earlier requests (see `millstream.broker.dispatch.open_changes`). The
connection then dispatches neither this request nor later ones, until `answered` is called.

Invariants: `_pending` holds the requests without a response, oldest first. Outside of `_send_ready` the first one is
not ready. `is_full` is True exactly while the number or the bytes of these requests have reached their limit. Each open
change has its kind in `changing`. `_awaited` holds open changes only, and is empty unless a request waits.
"""

from collections.abc import Callable, Mapping, Sequence

from millstream.broker.dispatch.open_changes import TargetsOf, overlap
from millstream.broker.dispatch.request import Answer, BrokerRequest, DeferredResponse, Result, Work
from millstream.broker.dispatch.work_runner import WorkRunner
from millstream.broker.net.memory_limits import MemoryLimits
from millstream.broker.net.outbox import Outbox, memory_of
from millstream.broker.net.push_channel import StreamingRequest

PENDING_MAX = 64
PENDING_BYTES_MAX = 16 * 1024 * 1024

_READY = (bytes, list)


class ResponseQueue:
    __slots__ = (
        "_answered",
        "_awaited",
        "_bytes",
        "_fail",
        "_memory",
        "_now_s",
        "_outbox",
        "_pending",
        "_start",
        "_streams",
        "changing",
        "is_full",
    )

    def __init__(
        self,
        memory: MemoryLimits,
        outbox: Outbox,
        streams: Mapping[int, StreamingRequest],
        runner: WorkRunner,
        *,
        now_s: Callable[[], float],
        answered: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Store the connection's parts.

        `streams` holds its streaming requests. `now_s` reads the monotonic clock. `answered` is called when delayed
        responses were put into the outbox, or the changes that a request waits for are complete. `fail` is called with
        the exception of a request that gets no response.
        """
        self.is_full = False
        self.changing = 0
        """The kinds of the open changes. Kinds of complete changes may remain until `must_wait` or the last response
        removes them."""
        self._memory = memory
        self._outbox = outbox
        self._streams = streams
        self._start = runner.start
        self._now_s = now_s
        self._answered = answered
        self._fail = fail
        self._pending: list[DeferredResponse] = []  # A deque takes ten times the memory of an idle list.
        self._bytes = 0
        self._awaited: Sequence[DeferredResponse] = ()

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self,
        correlation_id: int,
        flexible: bool,
        frame_bytes: int,
        result: Result,
        observe: Callable[[float], None],
        begun_s: float,
    ) -> None:
        """Add the result of the newest request, whose frame has `frame_bytes` bytes.

        `observe` is called with the duration since `begun_s` when the request is answered.
        """
        if isinstance(result, DeferredResponse):
            later = result
        elif result is None:
            self._memory.give_back(frame_bytes)
            observe(self._now_s() - begun_s)
            return
        elif isinstance(result, Work):
            later = DeferredResponse(result.hurry, result.change)
        elif self._pending:
            later = DeferredResponse.done(result)
        else:
            self._memory.give_back(frame_bytes)
            self._outbox.put(correlation_id, flexible, result)
            observe(self._now_s() - begun_s)
            if correlation_id in self._streams:
                self._streams[correlation_id].begin()
            return
        later.queued(correlation_id, flexible, frame_bytes, self._ready, self._start, observe, begun_s)
        change = later.change
        if change is not None:
            self.changing |= change.kind
        self._pending.append(later)
        self._count(frame_bytes)
        if later.is_done:
            self._ready(later)
        elif isinstance(result, Work):
            self._start(result, later)

    def must_wait(self, request: BrokerRequest, waits_for: int, targets: TargetsOf | None) -> bool:
        """True if the next request must wait for open changes of these kinds to its targets."""
        if self._awaited:
            return True
        self.changing = 0
        conflicting = []
        for later in self._pending:
            if later.change is not None:
                self.changing |= later.change.kind
                if later.change.kind & waits_for:
                    conflicting.append((later, later.change))
        if conflicting:
            wanted = None if targets is None else targets(request)
            self._awaited = [later for later, change in conflicting if overlap(change.targets(), wanted)]
        return bool(self._awaited)

    def hurry(self) -> None:
        """Ask the handlers of all pending requests to respond with the data they have."""
        for each in list(self._pending):
            each.hurry()

    def drop(self) -> None:
        """Drop all pending responses, because the peer has disconnected."""
        pending, self._pending = self._pending, []
        self._awaited = ()
        self._count(-self._bytes)
        self._memory.outgoing_bytes -= sum(each.held_bytes for each in pending)
        for each in pending:
            each.hurry()
            self._memory.give_back(each.frame_bytes)

    def _ready(self, later: DeferredResponse) -> None:
        if not self._pending:
            return  # The responses were dropped.
        if later.error is not None:
            self._fail(later.error)
            return
        is_awaited = later in self._awaited
        if is_awaited:
            self._awaited = [each for each in self._awaited if each is not later]
        if later is self._pending[0]:
            self._send_ready()
            self._answered()
            return
        later.held(memory_of(later.answer) if later.answer is not None else 0)
        self._memory.outgoing_bytes += later.held_bytes
        if is_awaited and not self._awaited:
            self._answered()

    def _send_ready(self) -> None:
        """Put the ready responses at the front of the queue into the outbox."""
        memory, all_pending = self._memory, self._pending
        while all_pending and all_pending[0].is_done:
            later = all_pending.pop(0)
            self._count(-later.frame_bytes)
            memory.outgoing_bytes -= later.held_bytes
            memory.give_back(later.frame_bytes)
            later.observe(self._now_s() - later.begun_s)
            answer: Answer | None = later.answer
            if answer is not None:
                self._outbox.put(later.correlation_id, later.flexible, answer)
                if later.correlation_id in self._streams:
                    self._streams[later.correlation_id].begin()
        if not all_pending:
            self.changing = 0
        assert not all_pending or not all_pending[0].is_done, "the first pending response is not ready"

    def _count(self, more: int) -> None:
        self._bytes += more
        assert self._bytes >= 0, "a response was sent twice"
        self.is_full = len(self._pending) >= PENDING_MAX or self._bytes >= PENDING_BYTES_MAX

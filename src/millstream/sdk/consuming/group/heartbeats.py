"""Keeps a member in its group: joins, sends heartbeats at the coordinator's interval, and rejoins after a removal."""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from millstream.model.errors import MillstreamError
from millstream.process.log_event import LogEvent
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.group_results import HeartbeatResponse
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.consuming.group.member_core import Consequence, MemberCore
from millstream.sdk.consuming.group.member_watch import MemberWatch
from millstream.seams.entropy import Entropy

log = logging.getLogger("millstream.sdk.consumer")

BEAT_TIMEOUT_S = 10.0
EARLY_BEAT_S = 0.25
"""Delay before the second heartbeat of a member without partitions and watch; it then grows up to the interval.

A coordinator collects joining members for a moment before it assigns partitions, and reports the assignment only in its
next answer, so waiting for a whole interval would delay the first message.
"""
_FOREVER_S = 1e9


class Heartbeats:
    """Sends heartbeats in a background task, so that a reader that processes messages slowly stays in the group.

    A reader that shows no progress within its time limit leaves the group: its partitions go to other members, and it
    rejoins when it polls again. Progress means that the reader polls, or that `progress` returns a new number.
    `changed` is called after every answer and every failure.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        core: MemberCore,
        entropy: Entropy,
        *,
        progress: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self.failure: MillstreamError | None = None
        self.trouble: MillstreamError | None = None
        """The error of the last heartbeat; None if it was answered."""
        self.answered_s = 0.0
        """The time of the coordinator's last answer, on the event loop's clock."""
        self._coordinators = coordinators
        self._core = core
        self._watch = MemberWatch(coordinators, core, self.soon)
        self._entropy = entropy
        self._progress = progress
        self._last_progress = 0
        self._changed = changed
        self._outcome = asyncio.Event()
        """Set, and replaced, after each heartbeat's answer or failure."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._busy_since_s: float | None = None
        self._idle_s = inf
        self._waits_for_reader = False
        self._early_beat_s = EARLY_BEAT_S
        self._task: asyncio.Task[None] | None = None

    async def join(self, timeout_s: float) -> None:
        """Send the first heartbeat and start the background task; raises the error if the coordinator refuses."""
        deadline = Deadline(timeout_s)
        request = group_requests.heartbeat(self._core.beat())

        async def attempt() -> HeartbeatResponse:
            try:
                return await self._coordinators.ask_once(self._core.group_id, request, deadline)
            except MillstreamError as error:
                self.trouble = error
                raise

        self._core.answered(await self._coordinators.retrying(attempt, deadline))
        self.trouble = None
        self.answered_s = self._loop.time()
        self._task = asyncio.create_task(self._run(), name=f"heartbeats of {self._core.member_id}")

    async def beat_now(self, deadline: Deadline) -> None:
        """Send a heartbeat early, and wait for its response, its failure or the deadline."""
        self.soon()
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._outcome.wait()
        except TimeoutError:
            pass

    def soon(self) -> None:
        """Send the next heartbeat without waiting for the interval."""
        self._wake.set()

    @property
    def is_given_up(self) -> bool:
        """True if the reader has shown no progress within its time limit."""
        if self._busy_since_s is None:
            return False
        if self._progress() != self._last_progress:
            self._last_progress = self._progress()
            self._busy_since_s = self._loop.time()
        return self._loop.time() - self._busy_since_s > self._idle_s

    def reader_is_busy(self, idle_s: float) -> None:
        """Start the reader's time limit: it processes messages or runs a callback."""
        self._busy_since_s = self._loop.time()
        self._idle_s = idle_s
        self._last_progress = self._progress()

    def reader_is_back(self) -> None:
        """End the reader's time limit; if the member has left the group for it, rejoin."""
        self._busy_since_s = None
        if self._waits_for_reader:
            self.soon()

    async def leave(self, timeout_s: float) -> None:
        """Stop heartbeats and try to leave the group within the timeout; otherwise the session timeout removes it."""
        await self.stop()
        if self._core.epoch > 0:
            await self._send_leave(timeout_s)

    async def stop(self) -> None:
        """Stop sending heartbeats."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_leave(self, timeout_s: float) -> None:
        request = group_requests.heartbeat(self._core.leave())
        try:
            await self._coordinators.ask(self._core.group_id, request, Deadline(timeout_s))
        except MillstreamError:
            pass  # Without heartbeats the coordinator removes the member at the session timeout.

    async def _run(self) -> None:
        try:
            await self._beat()
        except Exception as error:
            self.failure = client_failed(log, f"heartbeats of group {self._core.group_id!r}", error)
            self._notify()

    async def _beat(self) -> None:
        attempts = self._new_attempts()
        await self._watch.open(BEAT_TIMEOUT_S)
        await self._rest()
        while self.failure is None:
            if self.is_given_up:
                await self._wait_for_reader()
            try:
                request = group_requests.heartbeat(self._core.beat())
                answer = await self._coordinators.ask_once(self._core.group_id, request, Deadline(BEAT_TIMEOUT_S))
            except MillstreamError as error:
                if self._core.failed(error) is Consequence.GIVE_UP:
                    self.failure = error
                self.trouble = error
                self._notify()
                await attempts.pause()
                continue
            attempts = self._new_attempts()
            self._core.answered(answer)
            self.trouble = None
            self.answered_s = self._loop.time()
            self._notify()
            await self._watch.open(BEAT_TIMEOUT_S)
            await self._rest()

    def _notify(self) -> None:
        """Wake the callers that wait for this heartbeat's outcome."""
        self._outcome.set()
        self._outcome = asyncio.Event()
        self._changed()

    async def _rest(self) -> None:
        """Wait until the next heartbeat is due or `soon` asks for an earlier one."""
        rest_s = self._core.interval_ms / 1000
        if self._core.target or self._watch.is_open:
            self._early_beat_s = EARLY_BEAT_S
        else:
            rest_s = min(rest_s, self._early_beat_s)
            self._early_beat_s *= 1.5
        try:
            async with asyncio.timeout(rest_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _wait_for_reader(self) -> None:
        """Leave the group until the reader shows progress again."""
        core, event = self._core, "member left its group, no progress of the caller"
        log.warning(LogEvent(event, member=core.member_id, group=core.group_id, timeout_s=self._idle_s))
        if self._core.epoch > 0:
            await self._send_leave(BEAT_TIMEOUT_S)
            self._changed()
        self._waits_for_reader = True
        while self.is_given_up:
            self._wake.clear()
            await self._wake.wait()
        self._waits_for_reader = False

    def _new_attempts(self) -> Attempts:
        return Attempts(self._entropy, Deadline(_FOREVER_S))

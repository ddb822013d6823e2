"""Keeps a member in its group: joins, beats as often as the coordinator asks, joins again when it was given up."""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from millstream.model.errors import MillstreamError
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.retry_policy import Attempts, Deadline
from millstream.sdk.consuming.group.member_core import Consequence, MemberCore
from millstream.seams.entropy import Entropy

log = logging.getLogger("millstream.sdk.consumer")

BEAT_TIMEOUT_S = 10.0
HURRY_S = 0.25
"""When a member that has nothing asks again, then ever later, up to the interval: coordinators gather for a
moment before they share out, and tell of it only when asked."""
_FOREVER_S = 1e9


class Heartbeats:
    """Runs beside the reading, so that a reader who takes its time over messages is not taken for dead.

    One who gives no sign of life for its time is: its partitions go to others, and it joins again when it comes back.
    A sign of life is that it comes back, or that `progress` gives another number than before. `changed` is called after
    every answer and every failure.
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
        """Why the last heartbeat was not answered; None when it was."""
        self.answered_s = 0.0
        """When the coordinator was last heard of."""
        self._coordinators = coordinators
        self._core = core
        self._entropy = entropy
        self._progress = progress
        self._seen = 0
        self._changed = changed
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._busy_since_s: float | None = None
        self._idle_s = inf
        self._waits_for_reader = False
        self._hurry_s = HURRY_S
        self._task: asyncio.Task[None] | None = None

    async def join(self, timeout_s: float) -> None:
        """The first heartbeat; from then on they go by themselves. What the coordinator refuses is raised."""
        deadline = Deadline(timeout_s)
        request = group_requests.heartbeat(self._core.beat())
        self._core.answered(await self._coordinators.ask(self._core.group_id, request, deadline))
        self.answered_s = self._loop.time()
        self._task = asyncio.create_task(self._run(), name=f"heartbeats of {self._core.member_id}")

    async def ask_now(self, deadline: Deadline) -> None:
        """Have a heartbeat, and wait for what comes of it, or for the time to be over."""
        self.soon()
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def soon(self) -> None:
        """There is something to tell, or to ask."""
        self._wake.set()

    @property
    def is_given_up(self) -> bool:
        """Whether the reader has given no sign of life for too long."""
        if self._busy_since_s is None:
            return False
        if self._progress() != self._seen:
            self._seen = self._progress()
            self._busy_since_s = self._loop.time()
        return self._loop.time() - self._busy_since_s > self._idle_s

    def reader_is_busy(self, idle_s: float) -> None:
        """It has something to do, for which it may take so long, and will come back."""
        self._busy_since_s = self._loop.time()
        self._idle_s = idle_s
        self._seen = self._progress()

    def reader_is_back(self) -> None:
        self._busy_since_s = None
        if self._waits_for_reader:
            self.soon()

    async def leave(self, timeout_s: float) -> None:
        """Beat no more, and leave the group as far as that is possible in the time; the session's end does the rest."""
        await self.stop()
        if self._core.epoch > 0:
            await self._say_goodbye(timeout_s)

    async def stop(self) -> None:
        """Beat no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _say_goodbye(self, timeout_s: float) -> None:
        request = group_requests.heartbeat(self._core.leave())
        try:
            await self._coordinators.ask(self._core.group_id, request, Deadline(timeout_s))
        except MillstreamError:
            pass  # Nobody waits for the outcome: without heartbeats the coordinator comes to know as well.

    async def _run(self) -> None:
        try:
            await self._beat()
        except Exception as error:
            self.failure = client_failed(log, f"staying in group {self._core.group_id!r}", error)
            self._tell()

    async def _beat(self) -> None:
        attempts = self._new_attempts()
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
                self._tell()
                await attempts.pause()
                continue
            attempts = self._new_attempts()
            self._core.answered(answer)
            self.trouble = None
            self.answered_s = self._loop.time()
            self._tell()
            await self._rest()

    def _tell(self) -> None:
        """Something came of a heartbeat."""
        self._news.set()
        self._news = asyncio.Event()
        self._changed()

    async def _rest(self) -> None:
        """Until the next heartbeat is due, or there is a reason for an earlier one."""
        rest_s = self._core.interval_ms / 1000
        if self._core.target:
            self._hurry_s = HURRY_S
        else:
            rest_s = min(rest_s, self._hurry_s)
            self._hurry_s *= 1.5
        try:
            async with asyncio.timeout(rest_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _wait_for_reader(self) -> None:
        """Let others have the partitions while the reader does not come back."""
        log.warning(
            "%s in group %r: no sign of life for %g s; its partitions go to others until it comes back",
            self._core.member_id,
            self._core.group_id,
            self._idle_s,
        )
        if self._core.epoch > 0:
            await self._say_goodbye(BEAT_TIMEOUT_S)
            self._changed()
        self._waits_for_reader = True
        while self.is_given_up:
            self._wake.clear()
            await self._wake.wait()
        self._waits_for_reader = False

    def _new_attempts(self) -> Attempts:
        return Attempts(self._entropy, Deadline(_FOREVER_S))

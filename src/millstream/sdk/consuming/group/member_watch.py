"""Watches a member at the group's coordinator, which reports when a heartbeat would change the member's partitions.

The coordinator answers the request, and sends one further frame when the member should send a heartbeat now. A watch
costs no requests while nothing changes. A member without a watch learns of changes from its regular heartbeats, which
it sends in any case: brokers without this API, such as Apache Kafka's, have no watches.
"""

import logging
from collections.abc import Callable
from functools import partial

from millstream.model.errors import MillstreamError
from millstream.process.log_event import LogEvent
from millstream.sdk.admin import group_requests
from millstream.sdk.admin.groups import Coordinators
from millstream.sdk.connection.connection import BrokerConnection
from millstream.sdk.connection.retry_policy import Deadline
from millstream.sdk.consuming.group.member_core import MemberCore

log = logging.getLogger("millstream.sdk.consumer")


class _Watch:
    """One watch, on the connection that it was opened on."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.correlation_id: int | None = None
        self.is_over = False

    def end(self) -> None:
        """End the watch: its further frame has arrived, it was refused, or its connection is lost."""
        self.is_over = True
        if self.correlation_id is not None:
            self.connection.forget(self.correlation_id)


class MemberWatch:
    """The watch of one member. Calls `due` when the member should send a heartbeat now."""

    def __init__(self, coordinators: Coordinators, core: MemberCore, due: Callable[[], None]) -> None:
        self._coordinators = coordinators
        self._core = core
        self._due = due
        self._watch: _Watch | None = None

    @property
    def is_open(self) -> bool:
        return self._watch is not None and not self._watch.is_over

    async def open(self, timeout_s: float) -> None:
        """Open a watch at the coordinator, unless one is open there or the broker has no watches.

        A failure is not raised: the next heartbeat reports the error, and the caller opens the watch after it.
        """
        deadline = Deadline(timeout_s)
        try:
            connection = await self._coordinators.connection(self._core.group_id, deadline)
            known = self._watch
            if known is not None and not known.is_over and known.connection is connection:
                return
            if not connection.serves(group_requests.WATCH_MEMBER):
                return
            watch = self._watch = _Watch(connection)
            request = group_requests.watch_member(self._core.group_id, self._core.member_id)
            try:
                watch.correlation_id, _ = await connection.stand(
                    request, deadline.left_s, partial(self._further_frame, watch)
                )
            except BaseException:
                watch.end()
                raise
            if watch.is_over:
                watch.end()  # The further frame came with the response.
        except MillstreamError as error:
            core = self._core
            log.debug(LogEvent("member watch not opened", member=core.member_id, group=core.group_id, error=error))

    def _further_frame(self, watch: _Watch, outcome: MillstreamError | None) -> None:
        is_news = not watch.is_over and watch is self._watch and outcome is None
        watch.end()
        if is_news:
            self._due()

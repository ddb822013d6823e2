"""Subscriptions below their public class: plain asyncio code on one event loop.

There is a stream for each broker that leads some of the partitions (see `stream`). A stream that ends takes with it
what the caller has not been handed; its partitions go on, in a new stream, behind what it has. So nothing is lost and
nothing comes twice, whatever becomes of connections and brokers; only what a group was not told comes again, to others.

Invariant: each partition of `positions` belongs to a stream, or `_lost` is set and the keeper looks for a new one.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.records.batch import decode_messages
from millstream.records.message import Message
from millstream.sdk.admin.groups import Coordinators, GroupsEngine
from millstream.sdk.background_errors import client_failed
from millstream.sdk.connection.address import Address
from millstream.sdk.connection.retry_policy import FEW_ATTEMPTS, Attempts, Deadline
from millstream.sdk.connection.retrying_caller import RetryingCaller
from millstream.sdk.consuming.batch_opening import is_heavy
from millstream.sdk.metrics import count_read
from millstream.sdk.shared_start import SharedStart
from millstream.sdk.single_flight import SingleFlight
from millstream.sdk.subscribing.options import StreamSettings, SubscriptionEngineSettings
from millstream.sdk.subscribing.stream import Arrived, StreamOwner, SubscriptionStream

START_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 60.0
"""How soon partitions that are added to a topic are noticed."""

PARTITIONS_MAX = 1_000
"""So many partitions a broker takes in one subscription."""

CHECK_S = 15.0
"""How often a broker that has nothing to send is asked whether it is there."""

CLOSE_TIMEOUT_S = 3.0
_STABLE_S = 5.0
"""What has gone well for so long does not count as a repetition when it fails."""
_EVER_S = 1e9

log = logging.getLogger("millstream.sdk.subscription")


class DeliveredMessages(NamedTuple):
    """Messages of one partition, at least one."""

    where: TopicPartition
    messages: list[Message]
    position: int
    next_offset: int

    def behind(self, taken: int) -> int:
        """Where the partition goes on when so many of the messages were taken."""
        if not taken:
            return self.position
        return self.next_offset if taken == len(self.messages) else self.messages[taken].offset


class OpenedDelivery(NamedTuple):
    """What arrived, with its messages or what is wrong with them."""

    arrived: Arrived
    messages: list[Message]
    damage: MillstreamError | None = None


class SubscriptionEngine:
    def __init__(self, asking: RetryingCaller, settings: SubscriptionEngineSettings) -> None:
        self._asking = asking
        self._settings = settings
        self._stream_settings = StreamSettings(settings.window, settings.group_id, settings.otherwise, asking.entropy)
        self._owner = StreamOwner(self._arrived, self._refused, self._ended, self._failed)
        self.positions: dict[TopicPartition, int] = {}
        """Behind what the caller was handed."""
        self.finished: dict[TopicPartition, int] = {}
        """Behind what the caller has done with."""
        self._topic_ids: dict[str, UUID] = {}
        """Of the topics that the positions are places in."""
        self._streams: dict[SubscriptionStream, None] = {}
        self._queue: deque[Arrived] = deque()
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._failure: MillstreamError | None = None
        self._trouble: MillstreamError | None = None
        self._damaged = 0
        self._keeper: asyncio.Task[None] | None = None
        self._starting = SharedStart(self._start, "start of a subscription")
        self._opening = SingleFlight(self._open_first, "opening of what came")
        self._is_asked = False

    @property
    def buffered_bytes(self) -> int:
        """What has come and was not handed out."""
        return sum(len(arrived.stored) for arrived in self._queue)

    # Life.

    async def start(self) -> None:
        """Find where to begin, and subscribe; once. Raises what keeps that from succeeding in time."""
        await self._starting.wait()

    async def _start(self) -> None:
        deadline = Deadline(START_TIMEOUT_S)
        self._topic_ids.clear()
        self.positions = await self._starts(await self._places(deadline), deadline)
        await self._asking.retrying(partial(self._subscribe, deadline), deadline, *self._settings.topics)
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self, portion: DeliveredMessages | None = None, finished: int = 0) -> None:
        """Tell the group what the caller has finished, so many messages of a portion included, and end."""
        if portion is not None and self._settings.auto_commit_s is not None:
            self.finished[portion.where] = portion.behind(finished)
        await self._starting.close()
        await self._opening.close()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        deadline = Deadline(CLOSE_TIMEOUT_S)
        for stream in list(self._streams):
            await self._commit_last(stream, deadline)
            await stream.close()
        self._streams.clear()
        self._queue.clear()

    async def _commit_last(self, stream: SubscriptionStream, deadline: Deadline) -> None:
        offsets = {where: offset for where, offset in self.finished.items() if where in stream.places}
        if offsets and self._settings.auto_commit_s is not None and self._settings.group_id is not None:
            try:
                await stream.commit(offsets, deadline.left_s)
            except MillstreamError as error:
                log.warning("the last messages of a subscription could not be committed, and come again: %s", error)

    # Reading.

    async def next(self, timeout_s: float | None, done: DeliveredMessages | None = None) -> DeliveredMessages | None:
        """What comes next of some partition; None when nothing does in time, which is never when that is None.
        With the portion that the caller has done with.

        Failures that pass are waited out. Raised is what will not: a topic or a group that is refused, a place that is
        gone, damaged messages; and a start that failed, now or since the last call. CLIENT_MISUSED when somebody else
        is asking.
        """
        if self._is_asked:
            text = "this subscription is being asked already; it is for one task or thread at a time"
            raise MillstreamError(ErrorCode.CLIENT_MISUSED, text)
        self._is_asked = True
        try:
            deadline = Deadline(_EVER_S if timeout_s is None else timeout_s)
            if not await self._starting.wait_until(deadline):
                return None
            if done is not None:
                self.finish(done.where, done.next_offset)
            return await self._until(deadline)
        finally:
            self._is_asked = False

    async def _until(self, deadline: Deadline) -> DeliveredMessages | None:
        while True:
            while self._queue:
                opened = await self._open(deadline)
                if opened is None:
                    return None
                portion = self._take(opened)
                if portion is not None:
                    return portion
            self._raise_failure()
            self._news.clear()
            try:
                async with asyncio.timeout(deadline.left_s):
                    await self._news.wait()
            except TimeoutError:
                return None

    async def _open(self, deadline: Deadline) -> OpenedDelivery | None:
        """What came first, opened: in a worker if it is heavy, which goes on when the time is over (None)."""
        if not self._opening.is_under_way and not is_heavy(self._queue[0].stored):
            return _opened(self._queue[0])
        opening = await self._opening.wait(deadline)
        return None if opening is None else opening.result()

    async def _open_first(self) -> OpenedDelivery:
        return await self._asking.workers.run(partial(_opened, self._queue[0]))

    def _take(self, opened: OpenedDelivery) -> DeliveredMessages | None:
        """Its messages; None where there are none, or where it was taken back while it was opened. What cannot be read
        is asked for again, and raised when that did not help."""
        arrived, messages, damage = opened
        where, position, next_offset = arrived.where, arrived.position, arrived.next_offset
        if not self._queue or self._queue[0] is not arrived:
            return None
        self._queue.popleft()
        if damage is not None:
            self._damaged += 1
            arrived.stream.end(damage)
            if self._damaged >= FEW_ATTEMPTS:
                raise damage
            return None
        self._damaged = 0
        self.positions[where] = next_offset
        if messages and messages[0].offset < position:
            messages = messages[bisect_left(messages, position, key=attrgetter("offset")) :]
        if not messages:
            self.finish(where, next_offset)  # Places without messages need nobody's hand.
            return None
        count_read(self._asking.metrics, where.topic, len(messages), len(arrived.stored))
        return DeliveredMessages(where, messages, position, next_offset)

    def finish(self, where: TopicPartition, offset: int) -> None:
        """The caller has done with everything before `offset`."""
        if self._settings.auto_commit_s is None:
            return
        self.finished[where] = offset
        for stream in self._streams:
            if where in stream.places:
                stream.finish(where, offset)

    async def commit(self, offsets: Mapping[TopicPartition, int], metadata: str, timeout_s: float) -> None:
        """Commit these; waits for partitions that are being subscribed to again."""
        deadline = Deadline(timeout_s)
        left = dict(offsets)

        async def attempt() -> None:
            for stream in list(self._streams):
                share = {where: offset for where, offset in left.items() if where in stream.places}
                if share:
                    await stream.commit(share, self._asking.cluster.timeout_s(deadline), metadata)
                    for where in share:
                        del left[where]
            self._check_known(left)

        await self._asking.retrying(attempt, deadline)

    def _check_known(self, left: Mapping[TopicPartition, int]) -> None:
        for where in left:
            if where not in self.positions:
                text = f"{where} is not subscribed to"
                raise MillstreamError(ErrorCode.INVALID_REQUEST, text)
            raise MillstreamError(ErrorCode.NETWORK_EXCEPTION, f"{where} is being subscribed to again")

    # What streams tell.

    def _arrived(self, arrived: Arrived) -> None:
        self._queue.append(arrived)
        self._news.set()

    def _refused(self, stream: SubscriptionStream, where: TopicPartition, error: MillstreamError) -> None:
        self._take_back(lambda arrived: arrived.where == where)
        if error.code.retriable:
            self._look_again(error, [where])
        else:
            self.positions.pop(where, None)
            self._failed(error)

    def _ended(self, stream: SubscriptionStream, error: MillstreamError) -> None:
        self._streams.pop(stream, None)
        self._take_back(lambda arrived: arrived.stream is stream)
        if stream.places:
            self._look_again(error, stream.places)

    def _failed(self, error: MillstreamError) -> None:
        self._failure = error
        self._news.set()

    def _look_again(self, error: MillstreamError, places: Iterable[TopicPartition]) -> None:
        log.info("subscribing again: %s", error)
        for topic in {where.topic for where in places}:
            self._asking.cluster.forget(topic)
        self._trouble = error
        self._lost.set()

    def _take_back(self, is_meant: Callable[[Arrived], bool]) -> None:
        """What the caller was not handed will come again."""
        self._queue = deque(arrived for arrived in self._queue if not is_meant(arrived))

    def _raise_failure(self) -> None:
        error = self._failure
        if error is not None:
            if self.positions:
                self._failure = None
            raise MillstreamError(error.code, error.detail)

    # Keeping it going.

    async def _keep(self) -> None:
        """Until it cannot be kept going: then whoever reads is told, and waits for nothing."""
        try:
            failure = await self._keep_on()
        except Exception as error:
            failure = client_failed(log, "the subscription", error)
        self.positions.clear()
        self._failed(failure)

    async def _keep_on(self) -> MillstreamError:
        """Find streams for partitions that have none, and look for new partitions; what that cannot go on after."""
        loop = asyncio.get_running_loop()
        look_at_s = loop.time() + LOOK_AGAIN_S
        stable_at_s = 0.0
        while True:
            await self._wait_for_trouble(look_at_s - loop.time())
            if loop.time() >= stable_at_s:
                attempts = Attempts(self._asking.entropy, Deadline(_EVER_S))
            trouble, self._trouble = self._trouble, None
            self._lost.clear()
            try:
                if trouble is not None:
                    raise trouble
                if loop.time() >= look_at_s:
                    look_at_s = loop.time() + LOOK_AGAIN_S
                    await self._find_new(Deadline(START_TIMEOUT_S))
                await self._subscribe(Deadline(START_TIMEOUT_S))
            except MillstreamError as error:
                stable_at_s = loop.time() + _STABLE_S
                self._lost.set()
                if not await attempts.again(error):
                    return error

    async def _wait_for_trouble(self, timeout_s: float) -> None:
        """For so long; meanwhile brokers are asked whether they are there, and groups told what has waited long."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        commit_s = None if self._settings.group_id is None else self._settings.auto_commit_s
        period_s = CHECK_S if commit_s is None else min(commit_s, CHECK_S)
        while not self._lost.is_set() and loop.time() < end_s:
            try:
                async with asyncio.timeout(min(period_s, end_s - loop.time())):
                    await self._lost.wait()
            except TimeoutError:
                for stream in self._streams:
                    if commit_s is not None:
                        stream.settle(now=True)
                    stream.check()

    async def _subscribe(self, deadline: Deadline) -> None:
        """A stream for each partition that has none."""
        covered = {where for stream in self._streams for where in stream.places}
        by_leader: dict[Address, list[TopicPartition]] = {}
        for where in self.positions:
            if where not in covered:
                await self._asking.cluster.same_topic(where.topic, self._topic_ids[where.topic], deadline)
                leader = await self._asking.cluster.leader(where.topic, where.partition, deadline)
                by_leader.setdefault(leader, []).append(where)
        for address, places in by_leader.items():
            for at in range(0, len(places), PARTITIONS_MAX):
                share = {where: self.positions[where] for where in places[at : at + PARTITIONS_MAX]}
                stream = SubscriptionStream(address, share, self._topic_ids, self._stream_settings, self._owner)
                self._streams[stream] = None
                try:
                    await stream.open(self._asking.cluster, deadline)
                except BaseException:
                    self._streams.pop(stream, None)
                    raise

    async def _find_new(self, deadline: Deadline) -> None:
        """Begin with partitions that were added to a topic, at their beginning."""
        if self._settings.partitions is not None:
            return
        for topic in self._settings.topics:
            self._asking.cluster.forget(topic)
        for where in await self._places(deadline):
            self.positions.setdefault(where, 0)

    async def _places(self, deadline: Deadline) -> list[TopicPartition]:
        chosen, topics = self._settings.partitions, self._settings.topics
        await self._asking.retrying(partial(self._asking.cluster.topics, topics, deadline), deadline)
        places = []
        for topic in topics:
            find = partial(self._asking.cluster.topic, topic, deadline)
            view = await self._asking.retrying(find, deadline, topic)
            self._topic_ids.setdefault(topic, view.topic_id)
            numbers = [row.number for row in view.partitions] if chosen is None else chosen
            places += [TopicPartition(topic, number) for number in numbers]
        return places

    async def _starts(self, places: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        """Where the group is, or else where the caller said."""
        settings, found = self._settings, {}
        if settings.group_id is not None:
            groups = GroupsEngine(self._asking, Coordinators(self._asking))
            committed = await groups.offsets(settings.group_id, places, timeout_s=deadline.left_s)
            found = {where: row.offset for where, row in committed.items()}
        rest = [where for where in places if where not in found]
        return found | await settings.start.find(self._asking, rest, deadline)


def _opened(arrived: Arrived) -> OpenedDelivery:
    try:
        return OpenedDelivery(arrived, decode_messages(arrived.stored, *arrived.where))
    except MillstreamError as error:
        return OpenedDelivery(arrived, [], error)

"""Keeps one kind of state in an internal topic: one shard per partition, and commands routed by the hash of their key.

A command runs on the shard of its key's partition. It is answered with NOT_COORDINATOR if that partition has no shard
on this broker. The first command creates the topic; until then there are no shards.

Invariants: a partition has at most one shard. After each change of the cluster image, the partitions of the topic that
this broker leads have a shard, and no others.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol

from millstream.catalog.cluster_image import ClusterDelta, ClusterImage, ClusterTopic
from millstream.catalog.cluster_metadata import ClusterMetadata
from millstream.coordination.effects import Answer, Notice
from millstream.coordination.key_hash import partition_of
from millstream.coordination.reply_queue import Command
from millstream.coordination.shard import Shard, no_cancel
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.waiters import Cancel
from millstream.partition.leadership import Leadership

_log = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """The name and settings with which the first command creates the topic."""

    name: str
    partitions: int
    settings: Mapping[str, str]


class InternalTopics(Protocol):
    """Creates topics, finds them in the cluster, and finds the partitions that this broker leads."""

    cluster: ClusterMetadata

    def of(self, topic: str) -> Sequence[Leadership]: ...

    async def create(
        self, name: str, partitions: int, settings: Mapping[str, str | None], *, internal: bool
    ) -> object: ...


class Coordinator(Generic[Command, Answer, Notice]):
    """Runs a shard for each partition of its topic that this broker leads, from `start` to `stop`. A service that keeps
    more than the shards' state extends it."""

    def __init__(
        self,
        topic: InternalTopic,
        partitions: InternalTopics,
        new_shard: Callable[[Leadership], Shard[Command, Answer, Notice]],
        failed: Callable[[Command, ErrorCode, str], Answer],
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._new_shard = new_shard
        self._failed = failed
        self._shards: dict[int, Shard[Command, Answer, Notice]] = {}
        self._followed: ClusterTopic | None = None
        """The topic in the image that the shards reflect."""
        self._partition_count = 0
        """Number of partitions of the topic; 0 while it does not exist."""
        self._creating: asyncio.Task[None] | None = None
        self._asking: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    async def start(self) -> None:
        """Adopts the partitions of the topic that this broker leads, and follows further changes of the cluster image.
        Shards accept commands once they are loaded."""
        self._partitions.cluster.add_listener(self._image_changed)
        self._follow(self._partitions.cluster.image.topic(self._topic.name))

    def _image_changed(self, image: ClusterImage, _: ClusterDelta) -> None:
        topic = image.topic(self._topic.name)
        if topic is not self._followed:  # Images share the topics that have not changed.
            self._follow(topic)

    def _follow(self, topic: ClusterTopic | None) -> None:
        """Releases the partitions that this broker no longer leads, and adopts those that it leads now."""
        self._followed = topic
        self._partition_count = topic.partitions if topic is not None else 0
        partitions = self._partitions.of(self._topic.name) if topic is not None else ()
        led = {partition.number: partition for partition in partitions}
        for number, shard in list(self._shards.items()):
            if led.get(number) is not shard.partition:
                del self._shards[number]
                shard.begin_close()
        for number, partition in led.items():
            if number not in self._shards:
                shard = self._shards[number] = self._new_shard(partition)
                shard.open()
        assert self._shards.keys() == led.keys(), "the partitions that this broker leads have a shard, and no others"

    async def stop(self) -> None:
        """Answers every command. Nothing is written to the log after this."""
        if not self._is_stopped:
            self._partitions.cluster.remove_listener(self._image_changed)
        self._is_stopped = True
        if self._creating is not None:
            await asyncio.wait([self._creating])
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            await shard.close()

    # Shards.

    @property
    def shards(self) -> Collection[Shard[Command, Answer, Notice]]:
        """The shards that run here."""
        return self._shards.values()

    async def ensure(self) -> None:
        """Creates the topic if it does not exist. Callers share one attempt, which continues when one of them is
        cancelled. Raises the errors of `InternalTopics.create`, and COORDINATOR_NOT_AVAILABLE if the catalog has the
        topic but the image does not."""
        while not self._partition_count:
            if self._is_stopped:
                raise MillstreamError(ErrorCode.SHUTTING_DOWN)
            if self._creating is None:
                self._creating = asyncio.get_running_loop().create_task(self._create())
                self._creating.add_done_callback(self._created)
            await asyncio.shield(self._creating)

    async def _create(self) -> None:
        name, partitions, settings = self._topic
        try:
            await self._partitions.create(name, partitions, settings, internal=True)
        except MillstreamError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        if self._is_stopped:
            raise MillstreamError(ErrorCode.SHUTTING_DOWN)
        if not self._partition_count:  # Retrying at once would find the same.
            raise MillstreamError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"topic {name} cannot be created: the catalog has one of this name that is not in the cluster image",
            )

    def _created(self, creating: "asyncio.Task[None]") -> None:
        self._creating = None
        error = None if creating.cancelled() else creating.exception()
        if error is not None and not self._is_stopped:
            _log.warning("internal topic not created", extra={"topic": self._topic.name, "error": str(error)})

    # Commands.

    def ask(self, key: str, command: Command, reply: Callable[[Answer], None]) -> Cancel:
        """Executes a command on the shard of its key. `reply` gets the answer once, perhaps before this method returns.
        The caller calls the returned function when it stops waiting; see `Shard.ask`."""
        if not self._partition_count:
            return self._ask_later(key, command, reply)
        shard = self._shards.get(partition_of(key, self._partition_count))
        if shard is not None:
            return shard.ask(command, reply)
        reply(self._failed(command, ErrorCode.NOT_COORDINATOR, ""))
        return no_cancel

    async def request(self, key: str, command: Command) -> Answer:
        """Executes a command on the shard of its key and waits for the answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask(key, command, partial(_fulfil, answer))
        return await answer

    async def request_all(self, command: Command) -> list[Answer]:
        """Executes a command on every shard, one after another, and waits for the answers."""
        answers = []
        for number in list(self._shards):
            shard = self._shards.get(number)
            if shard is None:
                continue  # It was released while another shard answered.
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            shard.ask(command, partial(_fulfil, answer))
            answers.append(await answer)
        return answers

    def tell_all(self, command: Command) -> None:
        """Executes a command that has no answer on every shard."""
        for shard in list(self._shards.values()):
            shard.tell(command)

    def _ask_later(self, key: str, command: Command, reply: Callable[[Answer], None]) -> Cancel:
        """Creates the topic, and then executes the command."""
        if self._is_stopped:
            reply(self._failed(command, ErrorCode.NOT_COORDINATOR, ""))
            return no_cancel
        cancel = _LateCancel()
        task = asyncio.get_running_loop().create_task(self._ask_after_creation(key, command, reply, cancel))
        self._asking[task] = None
        task.add_done_callback(self._asking.pop)
        return cancel

    async def _ask_after_creation(
        self, key: str, command: Command, reply: Callable[[Answer], None], cancel: "_LateCancel"
    ) -> None:
        try:
            await self.ensure()
        except MillstreamError as error:
            reply(self._failed(command, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail))
        else:
            cancel.inner = self.ask(key, command, reply)


class _LateCancel:
    """Cancels a command once its shard has received it. A command that still waits for the topic is not cancelled."""

    def __init__(self) -> None:
        self.inner: Cancel = no_cancel

    def __call__(self) -> None:
        self.inner()


def _fulfil(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)

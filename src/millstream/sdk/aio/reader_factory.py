"""Creates the readers of a client: consumers, subscriptions and iterators.

The readers are imported on first use: a program that only writes should not wait for the readers' imports.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from millstream.sdk.aio.facade import AsyncFacade
from millstream.sdk.arguments import Size
from millstream.sdk.reader_defaults import (
    AUTO_COMMIT_S,
    CALLBACK_TIMEOUT_S,
    CLOSE_TIMEOUT_S,
    HANDLER_TIMEOUT_S,
    ITERATOR_MESSAGES,
    PREFETCH_BYTES,
    READ_BYTES,
    SHARE_PERCENT,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
)
from millstream.sdk.time_arguments import Time
from millstream.sdk.value_formats import Decoded, V, Values

if TYPE_CHECKING:
    from re import Pattern

    from millstream.sdk.aio.consumer import AsyncConsumer
    from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls
    from millstream.sdk.aio.iterators import AsyncIterators
    from millstream.sdk.aio.subscription import AsyncSubscription
    from millstream.sdk.consuming.bad_values import OnBadValue
    from millstream.sdk.consuming.health import Health
    from millstream.sdk.consuming.options import ConsumerBaseOptions, OnChange
    from millstream.sdk.consuming.start_positions import StartPosition
    from millstream.sdk.subscribing.options import SubscriptionBaseOptions

Topics = str | Sequence[str]


class AsyncReaderFactory(AsyncFacade):
    """Base of the client: creates its readers."""

    @overload
    def consumer(
        self, topics: Topics = (), *, values: type[bytes] | None = None, **options: "Unpack[ConsumerBaseOptions]"
    ) -> "AsyncConsumer[bytes]": ...
    @overload
    def consumer(
        self, topics: Topics = (), *, values: Decoded[V], **options: "Unpack[ConsumerBaseOptions]"
    ) -> "AsyncConsumer[V]": ...
    @overload
    def consumer(
        self,
        topics: Topics = (),
        *,
        values: Values,
        **options: "Unpack[ConsumerBaseOptions]",
    ) -> "AsyncConsumer[Any]": ...
    def consumer(
        self,
        topics: Topics = (),
        *,
        pattern: "str | Pattern[str] | None" = None,
        group: str | None = None,
        start: "StartPosition | None" = None,
        stop: "StartPosition | None" = None,
        partitions: Sequence[int] | None = None,
        values: Values = None,
        on_bad_value: "OnBadValue" = "raise",
        on_bad_batch: str = "raise",
        auto_commit: Time | None = AUTO_COMMIT_S,
        handler_timeout: Time | None = HANDLER_TIMEOUT_S,
        callback_timeout: Time = CALLBACK_TIMEOUT_S,
        close_timeout: Time = CLOSE_TIMEOUT_S,
        instance_id: str | None = None,
        assignor: str | None = None,
        on_assigned: "OnChange | None" = None,
        on_revoked: "OnChange | None" = None,
        on_lost: "OnChange | None" = None,
        on_health: "Callable[[Health], None] | None" = None,
        prefetch_bytes: Size = PREFETCH_BYTES,
        local_files: bool = True,
        out_of_range: str = "nearest",
    ) -> "AsyncConsumer[Any]":
        """Create a consumer that reads these topics, alone or as a member of `group`; see `AsyncConsumer`.

        - `pattern` (None): a regular expression, instead of `topics`: reads all topics whose whole name matches it,
          except internal ones. New topics are read from their beginning. A consumer without a group finds them within
          60 s; in a group the broker finds them and supports RE2's syntax.
        - `group` (None): the group whose members share the partitions of the topics. None reads without a group.
        - `start` (None): the start position: "beginning", "latest", an offset, a dict of offsets, or a time. None is
          "latest" without a group, and "beginning" in a group, where it applies to partitions without a committed
          offset.
        - `stop` (None): the stop position, in the same formats; the consumer ends before it. None: never. Not with a
          group.
        - `partitions` (None): the partitions to read. None reads all, including partitions added later. Not with a
          group.
        - `values` (None): the format of values: None (bytes), `str`, "json", a msgspec type, a pydantic model, or a
          function of bytes.
        - `on_bad_value` ("raise"): the reaction to a value that cannot be decoded. "raise" raises UndecodableError.
          "skip" skips the message and logs a warning once a minute. A function is called with the message and the
          error for each such message; the consumer skips the message.
        - `on_bad_batch` ("raise"): the reaction to a stored batch whose records cannot be decoded. "raise" returns the
          messages before it, then raises UnreadableError until `seek` passes the batch. "skip" skips the batch and logs
          a warning.
        - `auto_commit` (5 s): the interval at which finished offsets are committed. None leaves commits to `commit()`.
        - `handler_timeout` (5 minutes): the longest time that the caller may take over a message or batch. After it the
          group assigns the consumer's partitions to other members. None: no limit.
        - `callback_timeout` (30 s): the longest time that a callback for changed partitions may take.
        - `close_timeout` (3 s): the longest time that closing may take to commit finished offsets and to leave the
          group. If the broker does not answer by then, it removes the member when the session timeout expires.
        - `instance_id` (None): makes the consumer a static member, which keeps its partitions when it restarts with the
          same instance id.
        - `assignor` (None): the group's assignor, "uniform" or "range". None leaves the choice to the broker.
        - `on_assigned` (None): called with partitions that the consumer starts to read.
        - `on_revoked` (None): called with partitions before they move to another member; their offsets can still be
          committed.
        - `on_lost` (None): called with partitions that already belong to other members; their offsets cannot be
          committed any more.
        - `on_health` (None): called whenever the consumer's activity changes; must not block.
        - `prefetch_bytes` (32 MiB): the most bytes fetched ahead of the caller.
        - `local_files` (True): read messages of a broker on the same machine from its files, if these are accessible.
          False fetches them over the network.
        - `out_of_range` ("nearest"): the reaction to an offset that does not exist any more. "nearest" continues at the
          nearest offset, "error" raises OFFSET_OUT_OF_RANGE. A consumer in a group always continues.
        """
        options = call_options(locals())
        from millstream.sdk.aio.consumer import AsyncConsumer

        return AsyncConsumer(self._portal, self._context, topics, **options)

    @overload
    def subscription(
        self, topics: Topics, *, values: type[bytes] | None = None, **options: "Unpack[SubscriptionBaseOptions]"
    ) -> "AsyncSubscription[bytes]": ...
    @overload
    def subscription(
        self, topics: Topics, *, values: Decoded[V], **options: "Unpack[SubscriptionBaseOptions]"
    ) -> "AsyncSubscription[V]": ...
    @overload
    def subscription(
        self,
        topics: Topics,
        *,
        values: Values,
        **options: "Unpack[SubscriptionBaseOptions]",
    ) -> "AsyncSubscription[Any]": ...
    def subscription(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        start: "StartPosition | None" = None,
        partitions: Sequence[int] | None = None,
        values: Values = None,
        window_messages: int = WINDOW_MESSAGES,
        window_bytes: Size = WINDOW_BYTES,
        share_percent: int = SHARE_PERCENT,
        auto_commit: Time | None = AUTO_COMMIT_S,
        out_of_range: str = "nearest",
        on_bad_value: "OnBadValue" = "raise",
        on_bad_batch: str = "raise",
    ) -> "AsyncSubscription[Any]":
        """Create a push subscription: brokers send the messages of these topics; see `AsyncSubscription`.

        - `group` (None): the group whose committed offsets the subscription continues from and commits to; it must have
          no members.
        - `start` (None): the start position: "beginning", "latest", an offset, a dict of offsets, or a time. None is
          "latest" without a group, and "beginning" with a group, where it applies to partitions without a committed
          offset.
        - `partitions` (None): the partitions to read. None reads all, including partitions added later.
        - `values` (None): the format of values: None (bytes), `str`, "json", a msgspec type, a pydantic model, or a
          function of bytes.
        - `window_messages` (10000): the most messages that each broker sends before they are finished.
        - `window_bytes` (4 MiB): the most bytes that each broker sends before they are finished. A larger batch is sent
          alone.
        - `share_percent` (50): the share of a full window that must be finished before the broker sends more.
        - `auto_commit` (5 s): the longest time until finished messages are committed. None leaves commits to
          `commit()`.
        - `out_of_range` ("nearest"): the reaction when messages are removed before they are sent. "nearest" continues
          at the first available message, "latest" at the log end, and "error" raises OFFSET_OUT_OF_RANGE.
        - `on_bad_value` ("raise"): the reaction to a value that cannot be decoded, as for a consumer: "raise", "skip",
          or a function of the message and the error.
        - `on_bad_batch` ("raise"): the reaction to a stored batch whose records cannot be decoded. "raise" delivers the
          messages before it, then raises UnreadableError in each call. "skip" skips the batch and logs a warning.
        """
        options = call_options(locals())
        from millstream.sdk.aio.subscription import AsyncSubscription

        return AsyncSubscription(self._portal, self._context, topics, **options)

    def iterators(
        self,
        topics: Topics = (),
        *,
        group: str,
        client_id: str | None = None,
        max_messages: int = ITERATOR_MESSAGES,
        max_bytes: Size = READ_BYTES,
        in_flight: Time | None = None,
        start: str = "beginning",
        on_bad_batch: str = "raise",
    ) -> "AsyncIterators":
        """Create a member of `group` that reads these topics with iterators; see `AsyncIterators`.

        - `client_id` (random): the client's id in the group. A client that restarts with the same id keeps its
          iterators.
        - `max_messages` (500): the most messages of one iterator.
        - `max_bytes` (1 MiB): the most bytes returned by one read.
        - `in_flight` (None): the time within which a batch must be committed; after it the messages may go to another
          client. None uses the broker's setting (30 s).
        - `start` ("beginning"): the start of partitions for which the group has committed nothing: "beginning" or
          "latest", or their synonyms "earliest" and "end".
        - `on_bad_batch` ("raise"): the reaction to a stored batch whose records cannot be decoded. "raise" returns the
          messages before it, then raises UnreadableError. "skip" skips the batch and logs a warning.
        """
        options = call_options(locals())
        from millstream.sdk.aio.iterators import AsyncIterators

        return AsyncIterators(self._portal, self._context, topics, **options)

    def iterator_calls(self) -> "AsyncIteratorCalls":
        """Create the stateless interface to iterators, for gateways of many clients; see `AsyncIteratorCalls`."""
        from millstream.sdk.aio.iterator_calls import AsyncIteratorCalls

        return AsyncIteratorCalls(self._portal, self._context)


def call_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options among the arguments of a call."""
    return {name: value for name, value in arguments.items() if name not in ("self", "topics")}

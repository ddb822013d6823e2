"""Defines the options of subscriptions, and validates them into the settings of the engine."""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from millstream.model import start_words
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.arguments import (
    INT32_MAX,
    NAME_MAX,
    Size,
    as_size,
    check_choice,
    check_number,
    check_partitions,
    check_text,
)
from millstream.sdk.consuming.bad_values import OnBadValue
from millstream.sdk.consuming.start_positions import StartPosition, StartPositions, reader_start
from millstream.sdk.feed.undecodable_batches import skips_bad_batches
from millstream.sdk.reader_defaults import AUTO_COMMIT_S, SHARE_PERCENT, WINDOW_BYTES, WINDOW_MESSAGES
from millstream.sdk.time_arguments import Time, Times
from millstream.sdk.value_formats import Values
from millstream.seams.entropy import Entropy
from millstream.wire.subscribe import BEGINNING, END, NOWHERE

_OUT_OF_RANGE = {"nearest": BEGINNING, start_words.LATEST: END, "error": NOWHERE}
"""The wire's code of each reaction. The broker sends nothing after the log end, so "nearest" is the log start."""


class SubscriptionBaseOptions(TypedDict, total=False):
    """The options of `client.subscription`, which describes them, except the one that decides the values' type."""

    partitions: Sequence[int] | None
    start: StartPosition | None
    group: str | None
    window_messages: int
    window_bytes: Size
    share_percent: int
    auto_commit: Time | None
    out_of_range: str
    on_bad_value: OnBadValue
    on_bad_batch: str


class SubscriptionOptions(SubscriptionBaseOptions, total=False):
    """The options of a subscription as a dict, for `client.subscription(topics, **options)`. All are optional.

    `group`, `start`, `partitions`, `values`, `on_bad_value`, `on_bad_batch`, `window_messages`, `window_bytes`,
    `share_percent`, `auto_commit` and `out_of_range`.
    """

    values: Values


class SubscriptionWindow(NamedTuple):
    """The limits of unfinished messages from each broker, which validates the values."""

    messages: int = WINDOW_MESSAGES
    size_bytes: int = WINDOW_BYTES
    share_percent: int = SHARE_PERCENT


class StreamSettings(NamedTuple):
    window: SubscriptionWindow
    group_id: str | None
    out_of_range: int
    entropy: Entropy


class SubscriptionEngineSettings(NamedTuple):
    topics: Sequence[str]
    partitions: Sequence[int] | None
    start: StartPositions
    group_id: str | None
    window: SubscriptionWindow
    out_of_range: int
    auto_commit_s: float | None
    """The longest time until finished messages are committed; None leaves commits to the caller."""
    skips_bad_batches: bool


def engine_settings(times: Times, topics: Sequence[str], options: SubscriptionOptions) -> SubscriptionEngineSettings:
    """Validate the options.

    Raises INVALID_SETTING, naming the option, for an invalid value.
    """
    if not topics:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "a subscription needs a topic")
    choice = options.get("out_of_range", "nearest")
    choice = start_words.start_word(choice) or choice if isinstance(choice, str) else choice
    check_choice("out_of_range", choice, _OUT_OF_RANGE)
    auto_commit = options.get("auto_commit", AUTO_COMMIT_S)
    group_id = options.get("group")
    if group_id is not None:
        check_text("group", group_id, least=1, most=NAME_MAX)
    window = SubscriptionWindow(
        options.get("window_messages", WINDOW_MESSAGES),
        as_size("window_bytes", options.get("window_bytes", WINDOW_BYTES), least=0, most=INT32_MAX),
        options.get("share_percent", SHARE_PERCENT),
    )
    check_number("window_messages", window.messages, least=0, most=INT32_MAX)
    check_number("share_percent", window.share_percent, least=0, most=100)
    check_partitions(options.get("partitions"))
    return SubscriptionEngineSettings(
        topics,
        options.get("partitions"),
        reader_start(options.get("start"), group_id, times),
        group_id,
        window,
        _OUT_OF_RANGE[choice],
        None if auto_commit is None else times.span_s(auto_commit, "auto_commit"),
        skips_bad_batches(options.get("on_bad_batch", "raise")),
    )

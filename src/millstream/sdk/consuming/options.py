"""Defines a consumer's options, and validates them into the settings of its engine."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import TypedDict

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.arguments import NAME_MAX, Size, as_size, check_choice, check_partitions, check_text
from millstream.sdk.consuming.bad_values import OnBadValue
from millstream.sdk.consuming.fetcher import POLL_BYTES_MIN
from millstream.sdk.consuming.group.membership import GroupRules
from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.start_positions import StartPosition, StartPositions, reader_start
from millstream.sdk.consuming.topic_pattern import TopicPattern
from millstream.sdk.reader_defaults import (
    AUTO_COMMIT_S,
    CALLBACK_TIMEOUT_S,
    CLOSE_TIMEOUT_S,
    HANDLER_TIMEOUT_S,
    PREFETCH_BYTES,
)
from millstream.sdk.time_arguments import Time, Times
from millstream.sdk.value_formats import Values

OnChange = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""A callback for changed partitions. If it returns an awaitable, the consumer awaits it."""


class ConsumerBaseOptions(TypedDict, total=False):
    """The options of `client.consumer`, which describes them, except those that decide the type of its values."""

    pattern: str | Pattern[str] | None
    partitions: Sequence[int] | None
    start: StartPosition | None
    stop: StartPosition | None
    group: str | None
    auto_commit: Time | None
    handler_timeout: Time | None
    callback_timeout: Time
    close_timeout: Time
    instance_id: str | None
    assignor: str | None
    on_assigned: OnChange | None
    on_revoked: OnChange | None
    on_lost: OnChange | None
    on_health: Callable[[Health], None] | None
    on_bad_value: OnBadValue
    on_bad_batch: str
    prefetch_bytes: Size
    local_files: bool
    out_of_range: str


class ConsumerOptions(ConsumerBaseOptions, total=False):
    """The options of a consumer as a dict, for `client.consumer(topics, **options)`. All of them are optional.

    `pattern`, `group`, `start`, `stop`, `partitions`, `values`, `on_bad_value`, `on_bad_batch`, `auto_commit`,
    `handler_timeout`, `callback_timeout`, `close_timeout`, `instance_id`, `assignor`, `on_assigned`, `on_revoked`,
    `on_lost`, `on_health`, `prefetch_bytes`, `local_files` and `out_of_range`.
    """

    values: Values


@dataclass(frozen=True, slots=True)
class ConsumerEngineSettings:
    topics: Sequence[str]
    pattern: TopicPattern | None
    """The expression of the topics' names, instead of `topics`."""
    partitions: Sequence[int] | None
    start: StartPositions
    stop: StartPositions | None
    prefetch_bytes: int
    moves_on: bool
    """True to continue at the nearest offset when the next one does not exist any more."""
    local_files: bool
    group: GroupRules | None
    callback_timeout_s: float


def engine_settings(times: Times, topics: Sequence[str], options: ConsumerOptions) -> ConsumerEngineSettings:
    """Validate a consumer's options.

    Raises INVALID_SETTING, naming the option, for an invalid value.
    """
    stop = options.get("stop")
    partitions = options.get("partitions")
    prefetch_bytes = as_size("prefetch_bytes", options.get("prefetch_bytes", PREFETCH_BYTES), least=POLL_BYTES_MIN)
    check_partitions(partitions)
    pattern = _pattern(topics, options)
    group = _group_rules(times, options, pattern)
    moves_on = _moves_on(options)
    if group is not None and not moves_on:
        raise _invalid('out_of_range="error" requires a consumer without a group; in a group use "nearest"')
    if group is not None and (stop is not None or partitions is not None):
        raise _invalid("stop and partitions require a consumer without a group; a group assigns the partitions itself")
    return ConsumerEngineSettings(
        topics,
        pattern,
        partitions,
        reader_start(options.get("start"), options.get("group"), times),
        None if stop is None else StartPositions(stop, times, "stop"),
        prefetch_bytes,
        moves_on,
        bool(options.get("local_files", True)),
        group,
        times.span_s(options.get("callback_timeout", CALLBACK_TIMEOUT_S), "callback_timeout"),
    )


def _pattern(topics: Sequence[str], options: ConsumerOptions) -> TopicPattern | None:
    chosen = options.get("pattern")
    if chosen is None and not topics:
        raise _invalid("topics: a consumer needs topics or a pattern; client.read reads without a consumer")
    if chosen is None:
        return None
    if topics or options.get("partitions") is not None:
        raise _invalid("pattern selects the topics; give either topics or a pattern, and no partitions with a pattern")
    return TopicPattern(chosen, is_matched_by_broker=options.get("group") is not None)


def _moves_on(options: ConsumerOptions) -> bool:
    choice = options.get("out_of_range", "nearest")
    check_choice("out_of_range", choice, ("nearest", "error"))
    return choice == "nearest"


def _group_rules(times: Times, options: ConsumerOptions, pattern: TopicPattern | None) -> GroupRules | None:
    """Validate the group options, also if no group is given; None without a group."""
    group_id, instance_id, assignor = options.get("group"), options.get("instance_id"), options.get("assignor")
    for name, text in (("group", group_id), ("instance_id", instance_id), ("assignor", assignor)):
        if text is not None:
            check_text(name, text, least=1, most=NAME_MAX)
    auto_commit = options.get("auto_commit", AUTO_COMMIT_S)
    handler_timeout = options.get("handler_timeout", HANDLER_TIMEOUT_S)
    auto_commit_s = None if auto_commit is None else times.span_s(auto_commit, "auto_commit")
    handler_timeout_s = None if handler_timeout is None else times.span_s(handler_timeout, "handler_timeout")
    close_timeout_s = times.span_s(options.get("close_timeout", CLOSE_TIMEOUT_S), "close_timeout")
    if group_id is None:
        return None
    return GroupRules(
        group_id,
        auto_commit_s,
        handler_timeout_s,
        times.span_s(options.get("callback_timeout", CALLBACK_TIMEOUT_S), "callback_timeout"),
        close_timeout_s,
        instance_id,
        assignor,
        has_callbacks=any(options.get(name) is not None for name in ("on_assigned", "on_revoked", "on_lost")),
        pattern=pattern,
    )


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, detail)

"""What can be said to a consumer, and what its engine is told of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.names import TopicPartition
from millstream.sdk.arguments import INT64_MAX, NAME_MAX, check_choice, check_number, check_partitions, check_text
from millstream.sdk.consuming.decoding import Values
from millstream.sdk.consuming.fetcher import POLL_BYTES_MIN, PREFETCH_BYTES
from millstream.sdk.consuming.group.membership import CALLBACK_TIMEOUT_S, CLOSE_TIMEOUT_S, HANDLER_TIMEOUT_S, GroupRules
from millstream.sdk.consuming.health import Health
from millstream.sdk.consuming.start_positions import Hint, StartPositions
from millstream.sdk.requests import LATEST
from millstream.sdk.time_arguments import Time, Times

AUTO_COMMIT_S = 5.0

OnChange = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""Told of partitions; what it returns is awaited where it can be."""


class ConsumerOptions(TypedDict, total=False):
    """All of them can be left out."""

    partitions: Sequence[int] | None
    """Which partitions of its topics it reads; None for all, also those that are added later. Not with a group."""
    start: Hint
    """Where it begins: "beginning", "latest" (as without), an offset, a dict of offsets, or a time. In a group only
    where the group has committed nothing."""
    stop: Hint | None
    """Before what it ends, said in the same way; None for never. Not with a group."""
    group: str | None
    """With whom it shares the topics."""
    auto_commit: Time | None
    """How often finished offsets are committed (5 s); None leaves that to `commit()`."""
    handler_timeout: Time | None
    """How long its caller may give no sign of life before the group goes on without it (5 minutes); None for ever."""
    callback_timeout: Time
    """How long it may take to be told of a change (30 s)."""
    close_timeout: Time
    """How long closing it may take to commit what is finished and to leave the group (3 s); a broker that does not
    answer by then gives it up when its session is over."""
    instance_id: str | None
    """Makes a static member: one that may go away and come back under this name and finds its partitions again."""
    assignor: str | None
    """How the group shares out, "uniform" or "range"; None leaves it to the broker."""
    on_assigned: OnChange | None
    """Told of partitions that it reads from now on."""
    on_revoked: OnChange | None
    """Told of partitions before they go to another member; they can still be committed here."""
    on_lost: OnChange | None
    """Told of partitions that have gone to others already: nothing of them can be committed any longer."""
    on_health: Callable[[Health], None] | None
    """Told whenever what it is doing changes; must not wait."""
    values: Values
    """What to make of values: nothing, `str`, "json", a msgspec type, a pydantic model, or a function of bytes."""
    prefetch_bytes: int
    """How much is fetched ahead of its caller; 32 MiB unless said otherwise."""
    local_files: bool
    """Whether messages of a broker on the same machine are read from its files, where they may be (as without), or sent
    like those of any other."""
    out_of_range: str
    """What to do where messages that come next are gone: go on at the "nearest" that is there (as without), or raise
    OFFSET_OUT_OF_RANGE ("error"). Not with a group, which always goes on."""


@dataclass(frozen=True, slots=True)
class ConsumerEngineSettings:
    topics: Sequence[str]
    partitions: Sequence[int] | None
    start: StartPositions
    stop: StartPositions | None
    prefetch_bytes: int
    moves_on: bool
    """Whether to go on where messages are gone."""
    local_files: bool
    group: GroupRules | None
    callback_timeout_s: float


def engine_settings(times: Times, topics: Sequence[str], options: ConsumerOptions) -> ConsumerEngineSettings:
    """INVALID_SETTING, naming it, for what cannot be; TypeError for what there is no option of."""
    unknown = sorted(options.keys() - ConsumerOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(ConsumerOptions.__annotations__)
        raise TypeError(f"a consumer has no option {unknown[0]!r}; there are {known}")
    stop = options.get("stop")
    partitions = options.get("partitions")
    prefetch_bytes = options.get("prefetch_bytes", PREFETCH_BYTES)
    check_number("prefetch_bytes", prefetch_bytes, POLL_BYTES_MIN, INT64_MAX)
    check_partitions(partitions)
    group = _group_rules(times, options)
    moves_on = _moves_on(options)
    if group is not None and not moves_on:
        raise _invalid('in a group reading always goes on; out_of_range="error" is for consumers without one')
    if group is not None and (stop is not None or partitions is not None):
        raise _invalid("in a group the group decides what is read; stop and partitions are for consumers without one")
    return ConsumerEngineSettings(
        topics,
        partitions,
        StartPositions(options.get("start", "latest"), times, "start", LATEST),
        None if stop is None else StartPositions(stop, times, "stop"),
        prefetch_bytes,
        moves_on,
        bool(options.get("local_files", True)),
        group,
        times.span_s(options.get("callback_timeout", CALLBACK_TIMEOUT_S), "callback_timeout"),
    )


def _moves_on(options: ConsumerOptions) -> bool:
    said = options.get("out_of_range", "nearest")
    check_choice("out_of_range", said, ("nearest", "error"))
    return said == "nearest"


def _group_rules(times: Times, options: ConsumerOptions) -> GroupRules | None:
    """None without a group; what is said of it is held against the same rules all the same."""
    group_id, instance_id, assignor = options.get("group"), options.get("instance_id"), options.get("assignor")
    for name, text in (("group", group_id), ("instance_id", instance_id), ("assignor", assignor)):
        if text is not None:
            check_text(name, text, 1, NAME_MAX)
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
        tells=any(options.get(name) is not None for name in ("on_assigned", "on_revoked", "on_lost")),
    )


def _invalid(detail: str) -> MillstreamError:
    return MillstreamError(ErrorCode.INVALID_SETTING, detail)

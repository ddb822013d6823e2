"""What can be said to a subscription, and what its engine is told of it."""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.sdk.arguments import INT32_MAX, NAME_MAX, check_choice, check_number, check_partitions, check_text
from millstream.sdk.consuming.decoding import Values
from millstream.sdk.consuming.start_positions import Hint, StartPositions
from millstream.sdk.requests import LATEST
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.entropy import Entropy
from millstream.wire.subscribe import BEGINNING, END, NOWHERE

WINDOW_MESSAGES = 10_000
WINDOW_BYTES = 4 * 1024 * 1024
SHARE_PERCENT = 50
AUTO_COMMIT_S = 5.0

_NUMBERS = ("window_messages", "window_bytes", "share_percent")
_GONE = {"beginning": BEGINNING, "latest": END, "error": NOWHERE}


class SubscriptionOptions(TypedDict, total=False):
    """All of them can be left out."""

    partitions: Sequence[int] | None
    """Which partitions of its topics are sent; None for all, also those that are added later."""
    start: Hint
    """Where it begins: "beginning", "latest" (as without), an offset, a dict of offsets, or a time. With a group only
    where the group has committed nothing."""
    group: str | None
    """Where what is finished is kept, and gone on from; it must have no members."""
    window_messages: int
    """How many messages each broker may send before they are finished (10000)."""
    window_bytes: int
    """How many bytes (4 MiB); a larger batch is sent when nothing else is under way."""
    share_percent: int
    """Once the window is full: how much of it must be finished before more is sent (50)."""
    auto_commit: Time | None
    """How long finished messages wait, at most, before the group is told (5 s); None leaves all that to `commit()`."""
    values: Values
    """What to make of values: nothing, `str`, "json", a msgspec type, a pydantic model, or a function
    of bytes."""
    when_gone: str
    """Where to go on when messages are removed before they are sent: "beginning", "latest", or "error" (as without)."""


class SubscriptionWindow(NamedTuple):
    """How much may be under way from each broker, which knows what is allowed."""

    messages: int = WINDOW_MESSAGES
    size_bytes: int = WINDOW_BYTES
    share_percent: int = SHARE_PERCENT


class StreamSettings(NamedTuple):
    window: SubscriptionWindow
    group_id: str | None
    otherwise: int
    entropy: Entropy


class SubscriptionEngineSettings(NamedTuple):
    topics: Sequence[str]
    partitions: Sequence[int] | None
    start: StartPositions
    group_id: str | None
    window: SubscriptionWindow
    otherwise: int
    auto_commit_s: float | None
    """How long finished messages of a group wait for more of them; None leaves committing to the caller."""


def engine_settings(times: Times, topics: Sequence[str], options: SubscriptionOptions) -> SubscriptionEngineSettings:
    """INVALID_SETTING, naming it, for what makes no sense; TypeError for what there is not."""
    unknown = sorted(set(options) - set(SubscriptionOptions.__annotations__))
    if unknown:
        known = ", ".join(SubscriptionOptions.__annotations__)
        raise TypeError(f"a subscription has no option {unknown[0]!r}; there are {known}")
    if not topics:
        raise MillstreamError(ErrorCode.INVALID_SETTING, "a subscription needs a topic")
    gone = options.get("when_gone", "error")
    check_choice("when_gone", gone, _GONE)
    auto_commit = options.get("auto_commit", AUTO_COMMIT_S)
    group_id = options.get("group")
    if group_id is not None:
        check_text("group", group_id, 1, NAME_MAX)
    window = SubscriptionWindow(
        options.get("window_messages", WINDOW_MESSAGES),
        options.get("window_bytes", WINDOW_BYTES),
        options.get("share_percent", SHARE_PERCENT),
    )
    for name, number, most in zip(_NUMBERS, window, (INT32_MAX, INT32_MAX, 100), strict=True):
        check_number(name, number, 0, most)
    check_partitions(options.get("partitions"))
    return SubscriptionEngineSettings(
        topics,
        options.get("partitions"),
        StartPositions(options.get("start", "latest"), times, "start", LATEST),
        group_id,
        window,
        _GONE[gone],
        None if auto_commit is None else times.span_s(auto_commit, "auto_commit"),
    )

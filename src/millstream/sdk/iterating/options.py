"""What can be said to a client of iterators, and what its engine is told of it."""

from collections.abc import Sequence
from typing import TypedDict

from millstream.sdk.arguments import INT32_MAX, NAME_MAX, check_choice, check_number, check_text
from millstream.sdk.fetching import MAX_BYTES
from millstream.sdk.iterating.call_engine import IteratorRequest
from millstream.sdk.iterating.engine import IteratorEngineSettings
from millstream.sdk.iterating.requests import BEGINNING, END
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.entropy import Entropy, random_uuid

MAX_MESSAGES = 500
_BROKERS_CHOICE = -1
_STARTS = {"beginning": BEGINNING, "latest": END}


class IteratorOptions(TypedDict, total=False):
    """All of them can be left out."""

    client_id: str
    """What the group knows the client by: one that comes back under the same goes on with what it has (random)."""
    max_messages: int
    """How many messages an iterator stands for at most (500)."""
    max_bytes: int
    """How many bytes of them are read at most at a time (1 MiB)."""
    in_flight: Time
    """How long a batch may take to be committed before others may be given it (what the broker says, 30 s)."""
    start: str
    """Where to begin if the group has committed nothing: "beginning" (as without) or "latest"."""


def engine_settings(
    times: Times, entropy: Entropy, group: str, topics: Sequence[str], options: IteratorOptions
) -> IteratorEngineSettings:
    """INVALID_SETTING, naming it, for what makes no sense; TypeError for what there is not."""
    unknown = sorted(set(options) - set(IteratorOptions.__annotations__))
    if unknown:
        known = ", ".join(IteratorOptions.__annotations__)
        raise TypeError(f"iterators have no option {unknown[0]!r}; there are {known}")
    client_id = options.get("client_id", str(random_uuid(entropy)))
    max_messages, max_bytes = options.get("max_messages", MAX_MESSAGES), options.get("max_bytes", MAX_BYTES)
    check_text("group", group, 1, NAME_MAX)
    check_text("client_id", client_id, 1, NAME_MAX)
    check_number("max_bytes", max_bytes, 1, INT32_MAX)
    iterator = wanted(times, max_messages, options.get("in_flight"), options.get("start", "beginning"))
    return IteratorEngineSettings(group, client_id, topics, max_bytes, iterator)


def wanted(times: Times, max_messages: int, in_flight: Time | None, start: str) -> IteratorRequest:
    """An iterator as it is to be asked for; INVALID_SETTING, naming it, for what makes no sense."""
    check_choice("start", start, _STARTS)
    check_number("max_messages", max_messages, 1, INT32_MAX)
    in_flight_ms = _BROKERS_CHOICE if in_flight is None else int(times.span_s(in_flight, "in_flight") * 1000)
    return IteratorRequest(max_messages, min(in_flight_ms, INT32_MAX), _STARTS[start])

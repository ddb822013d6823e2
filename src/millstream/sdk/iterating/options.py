"""Defines the options of iterator clients, and validates them into the settings of the engine."""

from collections.abc import Sequence
from typing import TypedDict

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.start_words import ACCEPTED_WORDS, BEGINNING, GROUP_START, LATEST, start_word
from millstream.sdk.arguments import INT32_MAX, NAME_MAX, Size, as_size, check_number, check_text
from millstream.sdk.feed.undecodable_batches import skips_bad_batches
from millstream.sdk.fetching import MAX_BYTES
from millstream.sdk.iterating import requests
from millstream.sdk.iterating.call_engine import IteratorRequest
from millstream.sdk.iterating.engine import IteratorEngineSettings
from millstream.sdk.reader_defaults import ITERATOR_MESSAGES
from millstream.sdk.time_arguments import Time, Times
from millstream.seams.entropy import Entropy, random_uuid

_BROKERS_CHOICE = -1
_STARTS = {BEGINNING: requests.BEGINNING, LATEST: requests.END}


class IteratorOptions(TypedDict, total=False):
    """The options of iterators as a dict, for `client.iterators(topics, group=group, **options)`. All are optional.

    `client_id`, `max_messages`, `max_bytes`, `in_flight`, `start` and `on_bad_batch`.
    """

    client_id: str | None
    max_messages: int
    max_bytes: Size
    in_flight: Time | None
    start: str
    on_bad_batch: str


def engine_settings(
    times: Times, entropy: Entropy, group: str, topics: Sequence[str], options: IteratorOptions
) -> IteratorEngineSettings:
    """Validate the options.

    Raises INVALID_SETTING, naming the option, for an invalid value.
    """
    chosen_id = options.get("client_id")
    client_id = str(random_uuid(entropy)) if chosen_id is None else chosen_id
    max_messages = options.get("max_messages", ITERATOR_MESSAGES)
    max_bytes = as_size("max_bytes", options.get("max_bytes", MAX_BYTES), most=INT32_MAX)
    check_text("group", group, least=1, most=NAME_MAX)
    check_text("client_id", client_id, least=1, most=NAME_MAX)
    iterator = wanted(times, max_messages, options.get("in_flight"), options.get("start", GROUP_START))
    skips = skips_bad_batches(options.get("on_bad_batch", "raise"))
    return IteratorEngineSettings(group, client_id, topics, max_bytes, iterator, skips)


def wanted(times: Times, max_messages: int, in_flight: Time | None, start: str) -> IteratorRequest:
    """Validate the parameters of an iterator; raises INVALID_SETTING, naming the parameter."""
    word = start_word(start) if isinstance(start, str) else None
    if word is None:
        text = f"start: {start!r} is not the start position of a group (use {ACCEPTED_WORDS})"
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    check_number("max_messages", max_messages, least=1, most=INT32_MAX)
    in_flight_ms = _BROKERS_CHOICE if in_flight is None else int(times.span_s(in_flight, "in_flight") * 1000)
    return IteratorRequest(max_messages, min(in_flight_ms, INT32_MAX), _STARTS[word])

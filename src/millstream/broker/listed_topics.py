"""Checks the topics that a request for changes lists by name."""

from collections.abc import Mapping

from millstream.model.authorization import Access
from millstream.model.errors import ErrorCode, MillstreamError

TOPICS_MAX = 1_000
"""Maximum number of topics in one request."""


def check_listed(name: str, times: Mapping[str, int], access: Access) -> None:
    """Check the right on a topic, that the request lists it once, and that the request lists not too many topics.

    `times` is the number of rows of each listed name. Raises TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST or
    POLICY_VIOLATION.
    """
    access.check_topic(name)
    if times[name] > 1:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"the request names topic {name!r} {times[name]} times")
    if len(times) > TOPICS_MAX:
        raise MillstreamError(ErrorCode.POLICY_VIOLATION, f"the request names more than {TOPICS_MAX} topics")

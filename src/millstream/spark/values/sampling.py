"""Samples a topic's newest messages, to infer the columns of their values."""

from millstream.sdk.sync.client import Client
from millstream.spark.options import SourceOptions
from millstream.spark.reading.topic_survey import TopicSurvey

MESSAGES_MAX = 1000
BYTES_MAX = 8 * 1024 * 1024


def sample(client: Client, options: SourceOptions) -> list[bytes]:
    """Returns values of all partitions, about the same number of each, in offset order within a partition."""
    survey = TopicSurvey(client, options)
    places = survey.find().places
    extents = survey.extents(places)
    each = max(1, MESSAGES_MAX // max(1, len(places)))
    found: list[bytes] = []
    left_bytes = BYTES_MAX
    for where, extent in extents.items():
        if left_bytes <= 0 or len(found) >= MESSAGES_MAX:
            break
        if extent.next > extent.first:
            start = max(extent.first, extent.next - each)
            portion = client.read(where.topic, where.partition, start, max_messages=each, max_bytes=left_bytes)
            values = [message.value for message in portion.messages if message.value is not None]
            found += values
            left_bytes -= sum(map(len, values))
    return found

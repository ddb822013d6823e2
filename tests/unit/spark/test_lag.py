"""Tests the lag of a query, computed from Spark's progress of its last batch."""

from typing import Any
from uuid import UUID

import pytest

from millstream.spark.pipelines.query_monitor import lag_of
from millstream.spark.reading.stream_positions import TopicPosition, to_json


def position(**offsets: dict[int, int]) -> dict[str, Any]:
    return to_json({topic: TopicPosition(UUID(int=1), each) for topic, each in offsets.items()})


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([], None),
        ([(position(a={0: 5}), position(a={0: 5}))], 0),
        ([(position(a={0: 5, 1: 7}), position(a={0: 8, 1: 9}))], 5),
        ([(position(a={0: 5}), position(a={0: 3}))], 0),
        ([(position(a={0: 5}), position(a={0: 5, 1: 4}, b={0: 2}))], 6),
        ([(position(a={0: 5}), position(a={0: 6})), (position(b={0: 1}), position(b={0: 3}))], 3),
        ([(position(a={0: 5}), None)], None),
        ([(None, position(a={0: 5}))], None),
        ([({"files": 3}, {"files": 4})], None),
        ([(17, 19), (position(a={0: 5}), position(a={0: 6}))], 1),
    ],
)
def test_lag_is_the_number_of_unread_messages_of_all_topics(sources: list[Any], lag: int | None) -> None:
    progress = {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}
    assert lag_of(progress) == lag

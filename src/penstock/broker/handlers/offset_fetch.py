"""OffsetFetch: which offsets a group has committed. None can be committed yet, so the answer is always "none".

It is served all the same: librdkafka asks the coordinator it was told of for the offset of every partition that is
assigned without one, and ends the whole process when the coordinator does not know the question.
"""

from typing import Any

from penstock.broker.request import Request
from penstock.wire.messages import read_request, write_response
from penstock.wire.reader import Fields

API = "OffsetFetch"
_MANY_FROM = 8
_NAMES = ("name", "topic_id")
_NOT_COMMITTED = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}


class OffsetFetchHandler:
    def __call__(self, request: Request) -> bytes:
        fields = read_request(API, request.version, request.frame, request.body)
        if request.version >= _MANY_FROM:
            groups = [{"group_id": group["group_id"], "topics": _topics(group)} for group in fields["groups"]]
            return write_response(API, request.version, {"groups": groups})
        return write_response(API, request.version, {"topics": _topics(fields)})


def _topics(asked: Fields) -> list[dict[str, Any]]:
    """For each partition that is named: nothing. All topics that have something (null) are no topics."""
    return [
        {
            **{key: topic[key] for key in _NAMES if key in topic},
            "partitions": [{"partition_index": number, **_NOT_COMMITTED} for number in topic["partition_indexes"]],
        }
        for topic in asked["topics"] or ()
    ]

"""Defines the requests of these tests, as an author of a client would write them from docs/wire.md."""

from typing import Any, NamedTuple

from interop.wire_alone.fields import Kind


class Call(NamedTuple):
    key: int
    version: int
    request: dict[str, Kind]
    response: dict[str, Kind]
    has_tags_in_header: bool = True


_FAILURE: dict[str, Kind] = {"error_code": "h", "error_message": "str"}
_MEMBER: dict[str, Kind] = {"group_id": "str", "client_id": "str"}
_MEMBERSHIP: dict[str, Kind] = {
    **_FAILURE,
    "generation": "i",
    "settled": "?",
    "heartbeat_interval_ms": "i",
    "session_timeout_ms": "i",
    "assignment": [{"topic": "str", "partitions": ["i"]}],
}
_GIVEN: dict[str, Kind] = {
    "client_id": "str",
    "topic": "str",
    "partition": "i",
    "node_id": "i",
    "host": "str",
    "port": "i",
    "offset": "q",
    "max_messages": "i",
    "generation": "i",
    "left_ms": "i",
    "iterator": "bytes",
    "delivered": "i",
}

# Requests of Kafka's protocol.
PRODUCE = Call(
    0,
    9,
    {
        "transactional_id": "str",
        "acks": "h",
        "timeout_ms": "i",
        "topics": [{"name": "str", "partitions": [{"index": "i", "records": "bytes"}]}],
    },
    {
        "responses": [
            {
                "name": "str",
                "partitions": [
                    {
                        "index": "i",
                        "error_code": "h",
                        "base_offset": "q",
                        "log_append_time_ms": "q",
                        "log_start_offset": "q",
                        "record_errors": [{"index": "i", "message": "str"}],
                        "error_message": "str",
                    }
                ],
            }
        ],
        "throttle_ms": "i",
    },
)
FETCH = Call(
    1,
    12,
    {
        "replica_id": "i",
        "max_wait_ms": "i",
        "min_bytes": "i",
        "max_bytes": "i",
        "isolation_level": "b",
        "session_id": "i",
        "session_epoch": "i",
        "topics": [
            {
                "topic": "str",
                "partitions": [
                    {
                        "partition": "i",
                        "leader_epoch": "i",
                        "fetch_offset": "q",
                        "last_fetched_epoch": "i",
                        "log_start_offset": "q",
                        "max_bytes": "i",
                    }
                ],
            }
        ],
        "forgotten": [{"topic": "str", "partitions": ["i"]}],
        "rack_id": "str",
    },
    {
        "throttle_ms": "i",
        "error_code": "h",
        "session_id": "i",
        "responses": [
            {
                "topic": "str",
                "partitions": [
                    {
                        "partition": "i",
                        "error_code": "h",
                        "high_watermark": "q",
                        "last_stable_offset": "q",
                        "log_start_offset": "q",
                        "aborted": [{"producer_id": "q", "first_offset": "q"}],
                        "preferred_read_replica": "i",
                        "records": "bytes",
                    }
                ],
            }
        ],
    },
)
API_VERSIONS = Call(
    18,
    3,
    {"name": "str", "version": "str"},
    {"error_code": "h", "keys": [{"key": "h", "first": "h", "last": "h"}], "throttle_ms": "i"},
    has_tags_in_header=False,
)
CREATE_TOPICS = Call(
    19,
    7,
    {
        "topics": [
            {
                "name": "str",
                "partitions": "i",
                "replicas": "h",
                "assignments": [{"partition": "i", "brokers": ["i"]}],
                "settings": [{"name": "str", "value": "str"}],
            }
        ],
        "timeout_ms": "i",
        "validate_only": "?",
    },
    {
        "throttle_ms": "i",
        "topics": [
            {
                "name": "str",
                "id": "uuid",
                **_FAILURE,
                "partitions": "i",
                "replicas": "h",
                "settings": [{"name": "str", "value": "str", "read_only": "?", "source": "b", "sensitive": "?"}],
            }
        ],
    },
)
INIT_PRODUCER_ID = Call(
    22,
    4,
    {"transactional_id": "str", "timeout_ms": "i", "producer_id": "q", "epoch": "h"},
    {"throttle_ms": "i", "error_code": "h", "producer_id": "q", "epoch": "h"},
)

# Millstream's own requests.
INFO = Call(
    1000,
    0,
    {"client_version": "str"},
    {
        **_FAILURE,
        "broker_version": "str",
        "client_version_min": "str",
        "client_version_max": "str",
        "server_time_ms": "q",
        "cluster_id": "str",
        "node_id": "i",
        "features": [{"name": "str", "value": "str"}],
    },
)
QUERY = Call(
    1001,
    0,
    {"sql": "str", "rows_max": "i", "timeout_ms": "i"},
    {**_FAILURE, "columns": ["str"], "rows": ["bytes"], "truncated": "?"},
)
ROLE = Call(1002, 0, {"role": "b", "producer_group": "str"}, _FAILURE)
PUTS = Call(
    1003,
    0,
    {
        "acks": "h",
        "timeout_ms": "i",
        "topics": [
            {
                "name": "str",
                "entries": [{"partition": "i", "hash": "q", "records": "bytes", "message_ids": ["bytes"]}],
            }
        ],
    },
    {
        "topics": [
            {
                "name": "str",
                "entries": [
                    {
                        **_FAILURE,
                        "partition": "i",
                        "base_offset": "q",
                        "log_append_time_ms": "q",
                        "log_start_offset": "q",
                        "known": [{"index": "i", "offset": "q"}],
                    }
                ],
            }
        ]
    },
)
_CURSOR: dict[str, Kind] = {"topic": "str", "partition": "i"}
_WANTED: dict[str, Kind] = {"topics": ["str"], "partitions_max": "i", "cursor": (_CURSOR,)}
SERVICE_MAP = Call(
    1004,
    0,
    _WANTED,
    {
        **_FAILURE,
        "cluster_id": "str",
        "controller_id": "i",
        "services": [{"kind": "str", "node_id": "i", "host": "str", "port": "i", "detail": "str"}],
        "topics": [
            {
                "error_code": "h",
                "name": "str",
                "partitions": [{"partition": "i", "leader_id": "i", "leader_epoch": "i"}],
            }
        ],
        "next_cursor": (_CURSOR,),
    },
)
BACKUP_MAP = Call(
    1005,
    0,
    _WANTED,
    {
        **_FAILURE,
        "note": "str",
        "topics": [
            {
                "error_code": "h",
                "name": "str",
                "partitions": [
                    {
                        "partition": "i",
                        "leader_id": "i",
                        "end_offset": "q",
                        "high_watermark": "q",
                        "followers": [{"node_id": "i", "in_sync": "?", "end_offset": "q"}],
                    }
                ],
            }
        ],
        "next_cursor": (_CURSOR,),
    },
)
GROUP_JOIN = Call(1010, 0, _MEMBER, _MEMBERSHIP)
GROUP_BEAT = Call(1011, 0, _MEMBER, _MEMBERSHIP)
GROUP_LEAVE = Call(1012, 0, _MEMBER, _FAILURE)
GET_ITERATOR = Call(
    1013,
    0,
    {**_MEMBER, "topic": "str", "partition": "i", "max_messages": "i", "in_flight_ms": "i", "start": "b"},
    {**_FAILURE, "given": (_GIVEN,)},
)
LIST_ITERATORS = Call(1014, 0, _MEMBER, {**_FAILURE, "given": [_GIVEN]})
READ_ITERATOR = Call(
    1015,
    0,
    {"iterator": "bytes", "max_bytes": "i", "max_wait_ms": "i"},
    {
        **_FAILURE,
        "iterator": "bytes",
        "next": "bytes",
        "offset": "q",
        "end_offset": "q",
        "high_watermark": "q",
        "log_start_offset": "q",
        "records": "bytes",
    },
)
COMMIT_ITERATOR = Call(
    1016,
    0,
    {**_MEMBER, "iterator": "bytes", "count": "i"},
    {**_FAILURE, "position": "q", "given": (_GIVEN,)},
)
WATCH_MEMBER = Call(1018, 0, {"group_id": "str", "member_id": "str"}, _FAILURE)
ITER_HAND = Call(1017, 0, {**_MEMBER, "iterator": "bytes", "count": "i"}, {**_FAILURE, "left_ms": "i"})
SUBSCRIBE = Call(
    1020,
    0,
    {
        "group_id": "str",
        "window_messages": "i",
        "window_bytes": "i",
        "share_percent": "b",
        "otherwise": "q",
        "topics": [
            {
                "name": "str",
                "topic_id": "uuid",
                "partitions": [{"partition": "i", "offset": "q", "leader_epoch": "i"}],
            }
        ],
    },
    {
        **_FAILURE,
        "partitions": [
            {
                "topic": "str",
                "partition": "i",
                "error_code": "h",
                "leader_epoch": "i",
                "position": "q",
                "next_offset": "q",
                "high_watermark": "q",
                "log_start_offset": "q",
                "error_message": "str",
                "records": "bytes",
            }
        ],
    },
)
SUBSCRIPTION_COMMIT = Call(
    1021,
    0,
    {
        "subscription_id": "i",
        "generation_or_epoch": "i",
        "member_id": "str",
        "instance_id": "str",
        "topics": [
            {
                "name": "str",
                "partitions": [{"partition": "i", "offset": "q", "leader_epoch": "i", "metadata": "str"}],
            }
        ],
    },
    {**_FAILURE, "topics": [{"name": "str", "partitions": [{"partition": "i", "error_code": "h"}]}]},
)
UNSUBSCRIBE = Call(1022, 0, {"subscription_id": "i"}, _FAILURE)


def fetch_from(topic: str, partition: int = 0, offset: int = 0) -> dict[str, Any]:
    """Build the fields of a Fetch of one partition that does not wait."""
    wanted = {
        "partition": partition,
        "leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten": [],
        "rack_id": "",
    }

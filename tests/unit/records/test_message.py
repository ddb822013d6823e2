"""Checks that a message behaves the same, compiled or not: as an immutable tuple of its fields."""

import importlib.util
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millstream.model.message_id import ID_HEADER, MadeId
from millstream.records import message
from millstream.records.compiled import COMPILED

FIELDS = ("orders", 3, 17, 1_700_000_000_123, b"key", b"value", (("trace", b"0f"), (ID_HEADER, b"id")))
MADE = (9, 2, 500, 10)
NAMES = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def _plain() -> Any:
    spec = importlib.util.spec_from_file_location("plain_message", Path(str(message.__file__)).with_name("message.py"))
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert not loaded.COMPILED
    return loaded.Message


@pytest.fixture(params=["plain", "compiled"])
def kind(request: pytest.FixtureRequest) -> Any:
    if request.param == "plain":
        return _plain()
    assert COMPILED, "the codec is not compiled: `make test` does it, or `python setup.py build_ext --inplace`"
    return message.Message


def test_message_fields_are_read_by_name_and_by_index(kind: Any) -> None:
    made = kind(*FIELDS)
    assert tuple(getattr(made, name) for name in NAMES) == tuple(made) == FIELDS
    topic, *_, headers = made
    assert (topic, headers) == (FIELDS[0], FIELDS[-1])
    assert (made[2], made[-2], made[:2], len(made)) == (17, b"value", ("orders", 3), 7)
    assert made == kind(**dict(zip(NAMES, FIELDS, strict=True)))


def test_a_message_can_be_matched_by_pattern(kind: Any) -> None:
    match kind(*FIELDS):
        case kind(topic, partition, value=value):
            assert (topic, partition, value) == ("orders", 3, b"value")
        case _:
            pytest.fail("it did not match")


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_immutable(kind: Any, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(kind(*FIELDS), name, None)
    with pytest.raises(AttributeError):
        kind(*FIELDS).something_else = 1


def test_a_message_equals_and_hashes_as_the_tuple_of_its_fields(kind: Any) -> None:
    made = kind(*FIELDS)
    assert made == kind(*FIELDS)
    assert made == FIELDS
    assert made == FIELDS
    assert made != made.with_value(b"other")
    assert made != "orders"
    assert hash(made) == hash(kind(*FIELDS)) == hash(FIELDS)


def test_messages_sort_by_topic_partition_and_offset(kind: Any) -> None:
    made = [kind("orders", partition, offset, 0, None, None) for partition in (1, 0) for offset in (5, 4)]
    assert [each[1:3] for each in sorted(made)] == [(0, 4), (0, 5), (1, 4), (1, 5)]


def test_the_repr_of_a_message_has_all_fields(kind: Any) -> None:
    assert repr(kind("orders", 3, 17, 5, None, b"value")) == (
        "Message(topic='orders', partition=3, offset=17, timestamp=5, key=None, value=b'value', headers=())"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_message_can_be_pickled(protocol: int) -> None:
    made = message.Message(*FIELDS)
    assert pickle.loads(pickle.dumps(made, protocol)) == made
    stored = message.Message(*FIELDS[:6], (), MADE)
    assert pickle.loads(pickle.dumps(stored, protocol)).message_id == stored.message_id


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (1_500, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        (2**62, datetime.max.replace(tzinfo=UTC)),
        (-(2**62), datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_the_time_of_a_message_is_its_timestamp_in_utc(kind: Any, timestamp: int, expected: datetime) -> None:
    assert kind("orders", 0, 0, timestamp, None, None).time == expected


def test_a_message_has_the_natural_id_of_its_header(kind: Any) -> None:
    assert kind(*FIELDS).message_id == b"id"
    assert kind(*FIELDS[:6]).message_id is None


def test_a_message_derives_its_made_id(kind: Any) -> None:
    made = kind(*FIELDS[:6], (), MADE)
    assert made.message_id == MadeId(9, 2, 3, 500, 7).encode()
    assert made.with_value(b"other").message_id == made.message_id
    assert kind(*FIELDS, MADE).message_id == b"id", "an id of its writer's own goes before"

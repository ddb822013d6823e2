"""Tests that a transactional producer of librdkafka fails at once, since the broker has no transactions."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from millstream.model.errors import ErrorCode
from millstream.testing.real_broker import RealBroker

LONG_S = 60


def test_init_transactions_fails_with_a_fatal_error_instead_of_retrying(tmp_path: Path) -> None:
    with RealBroker(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "orders"})
        with pytest.raises(KafkaException, match="Transactional Id authorization failed") as failure:
            producer.init_transactions(LONG_S)
        error = failure.value.args[0]
        assert error.code() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.number
        assert error.fatal()
        assert not error.retriable()

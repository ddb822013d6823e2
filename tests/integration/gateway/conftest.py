"""Provides a real broker with a real gateway per test file."""

from collections.abc import Iterator

import httpx
import pytest

from millstream.testing.real_broker import RealBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("broker") / "data", gateway=True) as started:
        yield started


@pytest.fixture(scope="module")
def web(broker: RealBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.http_port}", timeout=60) as client:
        yield client

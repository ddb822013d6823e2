"""Provides one broker per test module, and the command line connected to it."""

from collections.abc import Iterator

import pytest

from builders.command import Command
from millstream.testing.real_broker import RealBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def millstream(broker: RealBroker) -> Command:
    return Command(broker.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Returns a topic name that no other test uses."""
    return f"t-{abs(hash(request.node.nodeid))}"

"""Registers pytest fixtures with a broker. Pytest finds them once Millstream is installed.

`millstream_broker` is an empty `EmbeddedBroker` of the test, with faults and an adjustable clock.
`millstream_bootstrap` is the address of a broker that the whole run shares, for tests that only need their own topics.
`millstream_process` is a `RealBroker`: the `millstream serve` command as a separate process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.testing import EmbeddedBroker, RealBroker


@pytest.fixture
def millstream_broker() -> "Iterator[EmbeddedBroker]":
    """An embedded broker in this process, for this test alone."""
    from millstream.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millstream_bootstrap() -> Iterator[str]:
    """The address of a broker that all tests of this run share."""
    from millstream.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def millstream_process(tmp_path: Path) -> "Iterator[RealBroker]":
    """A broker in a separate process, for this test alone."""
    from millstream.testing import RealBroker

    with RealBroker(tmp_path / "millstream-data") as broker:
        yield broker

"""What pytest finds by itself once Millstream is installed: fixtures with a broker.

`millstream_broker` is an `EmbeddedBroker` of the test's own, empty, with faults and a clock to move;
`millstream_bootstrap` is the address of one that the whole run shares, for tests that only need some topics of their
own;
`millstream_process` is a `RealBroker`, the command people run, as a process of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.testing import EmbeddedBroker, RealBroker


@pytest.fixture
def millstream_broker() -> "Iterator[EmbeddedBroker]":
    """A broker in this process, for this test alone."""
    from millstream.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millstream_bootstrap() -> Iterator[str]:
    """Where clients reach a broker that all tests of this run share."""
    from millstream.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def millstream_process(tmp_path: Path) -> "Iterator[RealBroker]":
    """A broker as a process of its own, for this test alone."""
    from millstream.testing import RealBroker

    with RealBroker(tmp_path / "millstream-data") as broker:
        yield broker

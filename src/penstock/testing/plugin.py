"""What pytest finds by itself once Penstock is installed: fixtures with a broker.

`penstock_broker` is an `EmbeddedBroker` of the test's own, empty, with faults and a clock to move;
`penstock_bootstrap` is the address of one that the whole run shares, for tests that only need some topics of their own;
`penstock_process` is a `RealBroker`, the command people run, as a process of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import EmbeddedBroker, RealBroker


@pytest.fixture
def penstock_broker() -> "Iterator[EmbeddedBroker]":
    """A broker in this process, for this test alone."""
    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def penstock_bootstrap() -> Iterator[str]:
    """Where clients reach a broker that all tests of this run share."""
    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def penstock_process(tmp_path: Path) -> "Iterator[RealBroker]":
    """A broker as a process of its own, for this test alone."""
    from penstock.testing import RealBroker

    with RealBroker(tmp_path / "penstock-data") as broker:
        yield broker

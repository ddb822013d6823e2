"""Provides one broker per test module; topics and groups have unique names."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from millstream.testing.embedded import EmbeddedBroker

_numbers = itertools.count(os.getpid() * 1000)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def unused() -> Callable[[str], str]:
    """Make names that no other test uses."""
    return lambda kind: f"{kind}-{next(_numbers)}"

"""Selects the clients of a test by the abilities that it needs."""

import pytest

from interop.clients.ability import Ability
from interop.clients.client import COOPERATIVE, EAGER, NEW
from interop.clients.every import able

PROTOCOL_ABILITIES = {EAGER: Ability.GROUP, COOPERATIVE: Ability.COOPERATIVE, NEW: Ability.NEW_GROUP}


def each_that_can(*abilities: Ability) -> pytest.MarkDecorator:
    """Run the test with each client that has all of these abilities, as the fixture `client`."""
    return pytest.mark.parametrize("client", able(*abilities), indirect=True)


def own_protocol(name: str) -> str:
    """Return a group protocol that the client supports, for tests that do not depend on the protocol."""
    return next(protocol for protocol, ability in PROTOCOL_ABILITIES.items() if name in able(ability))

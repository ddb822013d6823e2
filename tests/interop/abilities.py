"""Which clients a test is for: all that can do what it is about."""

import pytest

from interop.clients.ability import Ability
from interop.clients.client import COOPERATIVE, EAGER, NEW
from interop.clients.every import able

PROTOCOL_ABILITIES = {EAGER: Ability.GROUP, COOPERATIVE: Ability.COOPERATIVE, NEW: Ability.NEW_GROUP}


def each_that_can(*abilities: Ability) -> pytest.MarkDecorator:
    """Run the test with each client, as `client`, that is able to all of these."""
    return pytest.mark.parametrize("client", able(*abilities), indirect=True)


def own_protocol(name: str) -> str:
    """The protocol by which a client's groups are shared out, where a test does not care."""
    return next(protocol for protocol, ability in PROTOCOL_ABILITIES.items() if name in able(ability))

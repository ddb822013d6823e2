"""Resolves the settings that depend on this machine, and refuses those that contradict each other."""

import os
import socket
from collections.abc import Sequence

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import EVERY_ADDRESS
from millstream.supervisor.port_checks import check_distinct_ports


def resolved(settings: BrokerSettings) -> BrokerSettings:
    """Resolves the settings that depend on this machine: absolute data directories and the advertised host.

    Raises INVALID_SETTING if two directories or two ports are the same.
    """
    _check_distinct(settings.data)
    check_distinct_ports(settings)
    return msgspec.structs.replace(
        settings,
        data=tuple(os.path.abspath(directory) for directory in settings.data),
        advertised_host=_advertised_host(settings),
    )


def _check_distinct(directories: Sequence[str]) -> None:
    """Raises INVALID_SETTING if two names are the same directory, which the broker would find locked by itself."""
    names: dict[str, str] = {}
    for name in directories:
        place = os.path.realpath(name)
        if place in names:
            both = (
                f"{name} twice" if names[place] == name else f"the same directory twice, as {names[place]} and {name}"
            )
            raise MillstreamError(ErrorCode.INVALID_SETTING, f"data: {both}; each directory may be given only once")
        names[place] = name


def _advertised_host(settings: BrokerSettings) -> str:
    if settings.advertised_host:
        return settings.advertised_host
    return socket.gethostname() if settings.host in EVERY_ADDRESS else settings.host

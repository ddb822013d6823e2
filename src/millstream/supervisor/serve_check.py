"""Checks the settings, directories and ports of `millstream serve` without starting it. Changes nothing."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from millstream.model.errors import MillstreamError
from millstream.model.units import format_size_bytes
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import is_loopback
from millstream.process.exit_codes import EXIT_CLEAN, EXIT_DATA_IN_USE, EXIT_FAILED, exit_code
from millstream.process.gateway_packages import missing_gateway_packages
from millstream.process.settings import PORT_OFF
from millstream.process.start_checks.report import PROBLEM, CheckedItem, checked_ports, report
from millstream.seams.local_disk import lock_holder
from millstream.storage.store import LOCK_NAME
from millstream.supervisor.gateway_start import gateway_command, runs_gateway
from millstream.supervisor.port_checks import GATEWAY_FIELDS, configured_ports
from millstream.supervisor.resolved_settings import resolved

GATEWAY_CHECK_S = 60.0
_MIB = 2**20


def run_check(settings: BrokerSettings) -> int:
    """Prints each check on standard output. Returns the exit code that a start would have."""
    return report(check_start(settings))


def check_start(settings: BrokerSettings) -> Iterator[CheckedItem]:
    """Yields the result of each check. Settings that contradict each other end the checks."""
    try:
        settings = resolved(settings)
    except MillstreamError as problem:
        yield CheckedItem(f"settings: {problem.detail}", exit_code(problem))
        return
    yield CheckedItem(f"settings: clients connect to {settings.advertised_host}, flush={settings.flush}")
    for directory in settings.data:
        yield _check_directory(Path(directory))
    yield from _check_ports(settings)
    if runs_gateway(settings) and not missing_gateway_packages():
        yield from _check_gateway(settings)
    if not is_loopback(settings.host):
        yield CheckedItem(
            f"exposure: {settings.host} admits other hosts without authentication; admit only trusted hosts"
        )


def _check_directory(directory: Path) -> CheckedItem:
    name = f"data directory {directory}"
    if not directory.exists():
        parent = next(each for each in directory.parents if each.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            return CheckedItem(f"{name}: cannot be created, because {parent} is not a writable directory", EXIT_FAILED)
        return CheckedItem(f"{name}: will be created")
    if not (directory.is_dir() and os.access(directory, os.R_OK | os.W_OK | os.X_OK)):
        return CheckedItem(f"{name}: this user cannot read and write it; change its owner", EXIT_FAILED)
    try:
        holder = lock_holder(str(directory / LOCK_NAME))
    except OSError as problem:
        return CheckedItem(f"{name}: {problem}", EXIT_FAILED)
    if holder is not None:
        return CheckedItem(f"{name}: in use by process {holder}; stop it or use another directory", EXIT_DATA_IN_USE)
    space = os.statvfs(directory)
    free_bytes = space.f_bavail * space.f_frsize
    return CheckedItem(f"{name}: writable, {format_size_bytes(free_bytes - free_bytes % _MIB)} free")


def _check_ports(settings: BrokerSettings) -> Iterator[CheckedItem]:
    missing = missing_gateway_packages()
    ports = configured_ports(settings)
    for name in GATEWAY_FIELDS:
        if name in ports and missing:
            yield CheckedItem(f"{name} {ports[name]}: not used, because the gateway's packages are not installed")
    yield from checked_ports(
        settings.host, {name: port for name, port in ports.items() if not (missing and name in GATEWAY_FIELDS)}
    )


def _check_gateway(settings: BrokerSettings) -> Iterator[CheckedItem]:
    """Runs the check of the gateway, which also reads its own variables and its own settings file.

    Its ports are those of the broker's settings, so they are not checked again.
    """
    any_ports = {name: 0 for name in GATEWAY_FIELDS if getattr(settings, name) != PORT_OFF}
    command = gateway_command(msgspec.structs.replace(settings, **any_ports), settings.kafka_port or 1)
    try:
        ended = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=GATEWAY_CHECK_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        yield CheckedItem(f"gateway: cannot be checked: {problem}", EXIT_FAILED)
        return
    if ended.returncode == EXIT_CLEAN:
        yield CheckedItem("gateway: its settings are valid")
        return
    found = [line.removeprefix(PROBLEM) for line in ended.stdout.splitlines() if line.startswith(PROBLEM)]
    for text in found or [ended.stderr.strip().removeprefix("millstream: ")]:
        yield CheckedItem(f"gateway: {' '.join(text.split())}", ended.returncode)

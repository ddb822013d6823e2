"""Checks the settings, directories and ports of `millstream serve` without starting it. Changes nothing."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import MillstreamError
from millstream.model.units import format_size_bytes
from millstream.node.settings import BrokerSettings
from millstream.process.addresses import is_loopback
from millstream.process.exit_codes import EXIT_CLEAN, EXIT_DATA_IN_USE, EXIT_FAILED, exit_code
from millstream.process.gateway_packages import missing_gateway_packages
from millstream.seams.local_disk import lock_holder
from millstream.storage.store import LOCK_NAME
from millstream.supervisor.port_checks import GATEWAY_FIELDS, check_ports, configured_ports
from millstream.supervisor.resolved_settings import resolved

_MIB = 2**20


class CheckedItem(NamedTuple):
    """One checked setting, directory or port. `code` is the exit code of a start, which fails unless it is 0."""

    text: str
    code: int = EXIT_CLEAN


def run_check(settings: BrokerSettings) -> int:
    """Prints each check on standard output. Returns the exit code that a start would have."""
    items = [*check_start(settings)]
    problems = [item for item in items if item.code != EXIT_CLEAN]
    for item in items:
        sys.stdout.write(f"{'problem' if item.code else 'ok':8} {item.text}\n")
    sys.stdout.write(
        f"The start would fail: {len(problems)} of {len(items)} checks found a problem.\n"
        if problems
        else f"All {len(items)} checks passed; nothing was started.\n"
    )
    return problems[0].code if problems else EXIT_CLEAN


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
    for name, port in configured_ports(settings).items():
        if name in GATEWAY_FIELDS and missing:
            yield CheckedItem(f"{name} {port}: not used, because the gateway's packages are not installed")
            continue
        try:
            check_ports(settings.host, {name: port}, patience_s=0.0)
            yield CheckedItem(f"{name} {port}: free")
        except MillstreamError as problem:
            yield CheckedItem(f"{name} {port}: {problem.detail}", exit_code(problem))

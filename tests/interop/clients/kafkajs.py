"""Drives KafkaJS, the client in pure JavaScript, which uses old versions of many requests."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from bench.building import built, run
from bench.peers import ROOT

from interop.clients.ability import Ability
from interop.clients.client import Message
from interop.clients.servant import ServantClient


class KafkaJsClient(ServantClient):
    name = "kafkajs"
    cannot: ClassVar[Mapping[Ability, str]] = {
        Ability.COOPERATIVE: "it supports only eager rebalancing",
        Ability.NEW_GROUP: "it supports only the classic group protocol",
    }

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Group headers of the same name, and drop headers without a value, because KafkaJS uses an object."""
        return [
            replace(message, headers=tuple((name, content or b"") for name, content in message.headers))
            for message in messages
        ]

    def command(self) -> Sequence[str]:
        return ["node", str(build() / "servant.js")]


def build() -> Path:
    """Install the packages and return the directory with the program."""
    return built(ROOT / "tests" / "interop" / "node", ("node", "npm"), _make)


def _make(sources: Path, directory: Path) -> None:
    for source in sources.iterdir():
        shutil.copy(source, directory)
    # The named versions are exact and have no dependencies, so a lock file would add nothing.
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run("npm", "install", *quiet, cwd=directory)

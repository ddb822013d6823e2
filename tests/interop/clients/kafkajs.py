"""KafkaJS: the client in pure JavaScript, which speaks old versions of many requests."""

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
        Ability.COOPERATIVE: "its groups always let go of everything",
        Ability.NEW_GROUP: "it has the classic protocol only",
    }

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Headers are an object: equal names stand together, and there is no header without content."""
        return [
            replace(message, headers=tuple((name, content or b"") for name, content in message.headers))
            for message in messages
        ]

    def command(self) -> Sequence[str]:
        return ["node", str(build() / "servant.js")]


def build() -> Path:
    """The directory with the program and its packages."""
    return built(ROOT / "tests" / "interop" / "node", ("node", "npm"), _make)


def _make(sources: Path, directory: Path) -> None:
    for source in sources.iterdir():
        shutil.copy(source, directory)
    # Exact versions and no packages behind those named, so that a lock file would say nothing more.
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run("npm", "install", *quiet, cwd=directory)

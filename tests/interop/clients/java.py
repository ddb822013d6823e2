"""Drives Apache Kafka's Java client."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.building import built, run
from bench.peers import POM, ROOT

from interop.clients.servant import ServantClient

# The JVM runs often and briefly, so optimisations for long runs only cost time.
SMALL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JavaClient(ServantClient):
    name = "java"

    def command(self) -> Sequence[str]:
        return java("Servant")


def java(*arguments: str, flags: Sequence[str] = SMALL) -> list[str]:
    """Return the command line of a class of Kafka or of these tests."""
    home = build()
    return ["java", *flags, "-cp", f"{home}:{home}/*", *arguments]


def build() -> Path:
    """Build the programs and return the directory with them and Kafka's jars."""
    return built(ROOT / "tests" / "interop" / "java", ("java", "javac", "mvn"), _make, POM)


def _make(sources: Path, directory: Path) -> None:
    fetch = ("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies")
    run(*fetch, "-DincludeScope=runtime", f"-DoutputDirectory={directory}")
    run("javac", "-cp", f"{directory}/*", "-d", str(directory), *map(str, sorted(sources.glob("*.java"))))
    for properties in sources.glob("*.properties"):
        shutil.copy(properties, directory)

"""Spark's own connector for Kafka, in an environment of its own: it needs jars, and an older Spark.

pip and Maven fetch what `spark-connector/` names, once; resolving the connector's own description would ask for
repositories that are not always there, so each jar is copied by itself.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.building import built, run
from bench.servant import Process

PATIENCE_S = 300.0
"""The first order starts Spark."""

_HERE = Path(__file__).parent


class Connector:
    """A session of Spark with the connector, in a process of its own. `java` is what to add to its environment."""

    def __init__(self, java: Mapping[str, str]) -> None:
        home = build()
        python = home / "bin" / "python"
        jars = sorted(map(str, (home / "jars").iterdir()))
        settings = [f"{name}={value}" for name, value in {**java, "PYSPARK_PYTHON": python}.items()]
        # Of Spark, there may be another one than that of the environment.
        self._command = ["env", "-u", "SPARK_HOME", *settings, str(python), str(_HERE / "connector_program.py"), *jars]
        self._process = Process()

    def ask(self, do: str, **operands: object) -> Any:
        """RuntimeError with what Spark said of an order that failed."""
        told = self._process.give(self._command, {"do": do, "with": operands}, PATIENCE_S)
        if "failed" in told:
            raise RuntimeError(told["failed"])
        return told["answer"]

    def close(self) -> None:
        self._process.close()


def build() -> Path:
    """The environment's directory, with the jars in it."""
    return built(_HERE / "spark-connector", ("mvn",), _make)


def _make(sources: Path, directory: Path) -> None:
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", sources / "requirements.txt")
    for artifact in (sources / "jars.txt").read_text().split():
        where = f"-DoutputDirectory={directory / 'jars'}"
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", where, cwd=directory)

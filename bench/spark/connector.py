"""Spark's own connector for Kafka, in an environment of its own: it needs jars, and an older Spark.

pip and Maven fetch what `spark-connector/` names, once; resolving the connector's own description would ask for
repositories that are not always there, so each jar is copied by itself.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.building import built, run
from bench.peers import ROOT
from bench.servant import Servant

PATIENCE_S = 300.0
"""The first order starts Spark."""

_NEEDS = Path(__file__).parent / "spark-connector"


class Connector(Servant):
    """A session of Spark with the connector, in a process of its own. `java` is what to add to its environment."""

    def __init__(self, java: Mapping[str, str]) -> None:
        home = build()
        python = home / "bin" / "python"
        jars = sorted(map(str, (home / "jars").iterdir()))
        settings = {**java, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": ROOT}
        # There may be another Spark beside that of the environment.
        command = ["env", "-u", "SPARK_HOME", *(f"{name}={value}" for name, value in settings.items())]
        super().__init__([*command, str(python), "-m", "bench.spark.connector_program", *jars], PATIENCE_S)


def build() -> Path:
    """The environment's directory, with the jars in it."""
    return built(_NEEDS, ("mvn",), _make)


def _make(sources: Path, directory: Path) -> None:
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", sources / "requirements.txt")
    for artifact in (sources / "jars.txt").read_text().split():
        where = f"-DoutputDirectory={directory / 'jars'}"
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", where, cwd=directory)

"""Runs Spark's Kafka connector in an environment of its own, because it needs jars and an older Spark.

pip and Maven download what `spark-connector/` lists, once. Each jar is copied by itself: resolving the connector's own
POM would need repositories that are not always available.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.building import built, run
from bench.peers import ROOT
from bench.servant import Servant

PATIENCE_S = 300.0
"""Timeout of a call. The first one starts Spark."""

_NEEDS = Path(__file__).parent / "spark-connector"


class Connector(Servant):
    """A Spark session with the connector, in a process of its own. `java` has environment variables for Java."""

    def __init__(self, java: Mapping[str, str]) -> None:
        home = build()
        python = home / "bin" / "python"
        jars = sorted(map(str, (home / "jars").iterdir()))
        settings = {**java, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": ROOT}
        # SPARK_HOME may point to another Spark than the environment's.
        command = ["env", "-u", "SPARK_HOME", *(f"{name}={value}" for name, value in settings.items())]
        super().__init__([*command, str(python), "-m", "bench.spark.connector_program", *jars], PATIENCE_S)


def build() -> Path:
    """Returns the environment's directory, with the jars in it."""
    return built(_NEEDS, ("mvn",), _make)


def _make(sources: Path, directory: Path) -> None:
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", sources / "requirements.txt")
    for artifact in (sources / "jars.txt").read_text().split():
        where = f"-DoutputDirectory={directory / 'jars'}"
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", where, cwd=directory)

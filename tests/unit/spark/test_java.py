"""Tests which Java is chosen for Spark, and the error if there is none."""

import subprocess
from pathlib import Path

import pytest

from millstream.spark import java
from millstream.spark.java import BUNDLED, JavaNotFoundError, java_environment, java_version


def pretend(directory: Path, version: str) -> Path:
    """Creates an executable that reports this version, as Java does."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(("told", "version"), [("1.8.0_402", 8), ("17.0.15", 17), ("21", 21), ("25.0.3", 25)])
def test_the_java_version_is_parsed_from_its_output(tmp_path: Path, told: str, version: int) -> None:
    assert java_version(pretend(tmp_path, told)) == version


def test_a_suitable_java_home_is_used(tmp_path: Path) -> None:
    pretend(tmp_path, "17.0.1")
    assert java_environment({"JAVA_HOME": str(tmp_path)}) == {}


def test_a_suitable_java_on_the_path_is_used(tmp_path: Path) -> None:
    assert java_environment({"PATH": str(pretend(tmp_path, "21.0.1").parent)}) == {}


@pytest.mark.parametrize("old", [True, False], ids=["too old", "none"])
def test_the_bundled_java_is_used_when_the_path_has_none_or_an_old_one(tmp_path: Path, old: bool) -> None:
    path = str(pretend(tmp_path, "11.0.2").parent) if old else str(tmp_path)
    chosen = java_environment({"PATH": path})
    assert chosen == java_environment({"JAVA_HOME": "/elsewhere"}, bundled=True)
    assert chosen["JAVA_HOME"] == str(Path(java.__file__).parent / "jdk")
    assert Path(chosen[BUNDLED]).is_file()


def test_a_java_home_without_java_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"has no bin/java that can be started.*millstream\[spark-java\]"):
        java_environment({"JAVA_HOME": str(tmp_path)})


def test_a_java_home_that_is_too_old_is_refused_with_its_version(tmp_path: Path) -> None:
    pretend(tmp_path, "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"is Java 11\. Spark needs Java 17"):
        java_environment({"JAVA_HOME": str(tmp_path)})


def test_the_error_says_what_to_install_when_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=r"No Java found.*apt-get install.*millstream\[spark-java\]"):
        java_environment({"PATH": str(tmp_path)})


def test_the_java_wrapper_removes_exactly_one_argument(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    asked = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=*", ""]
    stand_in = Path(java.__file__).parent / "jdk" / "bin" / "java"
    told = subprocess.run([stand_in, *asked], env={BUNDLED: str(echo)}, capture_output=True, text=True, check=True)
    assert told.stdout == "<-cp><a b><-Dx=*><>"

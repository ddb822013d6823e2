"""Drives kcat, the command line client, with Debian's older librdkafka."""

import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, ClassVar

from interop.clients.ability import Ability
from interop.clients.client import (
    COOPERATIVE,
    EAGER,
    TIMEOUT_S,
    Client,
    Headers,
    Member,
    Message,
    Received,
    RefusedError,
    Stored,
    Stream,
)

_KEY_MARK = "\x1f"
_LINE_MARK = "\x1e"
_ASSIGNED = re.compile(r"\[(\d+)\]")
_NO_ADMIN = "it can only produce, consume and list"


class KcatClient(Client):
    name = "kcat"
    cannot: ClassVar[Mapping[Ability, str]] = {
        Ability.CREATE: _NO_ADMIN,
        Ability.DELETE: _NO_ADMIN,
        Ability.DESCRIBE: _NO_ADMIN,
        Ability.ALTER: _NO_ADMIN,
        Ability.GROW: _NO_ADMIN,
        Ability.TRIM: _NO_ADMIN,
        Ability.RESET: _NO_ADMIN,
        Ability.DESCRIBE_GROUP: _NO_ADMIN,
        Ability.DELETE_GROUP: _NO_ADMIN,
        Ability.NEW_GROUP: "its librdkafka supports only the classic group protocol",
    }

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Use the same headers for all messages, and drop timestamps and empty values."""
        return [Message(message.value or None, message.key or None, (("by", b"kcat"),)) for message in messages]

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        lines = [(message.key or b"") + _KEY_MARK.encode() + (message.value or b"") for message in messages]
        command = ["-P", "-t", topic, "-p", str(partition), "-z", compression, "-Z", "-K", _KEY_MARK, "-D", _LINE_MARK]
        settings = ["-X", "acks=all", "-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=20"]
        headers = [f"-H{name}={(content or b'').decode()}" for name, content in messages[0].headers]
        self._run(command + settings + headers, _LINE_MARK.encode().join(lines) + _LINE_MARK.encode())
        return []

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        form = "%o %T %K %S %h\n%k%s"
        command = ["-C", "-q", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-f", form]
        rest = self._run([*command, "-X", "check.crcs=true"])
        found = []
        while rest:
            head, _, rest = rest.partition(b"\n")
            place, timestamp_ms, key_size, value_size, headers = head.decode().split(" ", 4)
            key, rest = _take(rest, int(key_size))
            value, rest = _take(rest, int(value_size))
            found.append(Stored(int(place), Message(value, key, _headers(headers), int(timestamp_ms))))
        return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._query(topic, partition, timestamp_ms)
        return offset if offset >= 0 else None

    def topics(self) -> Mapping[str, int]:
        found = {}
        for line in self._run(["-L"]).decode().splitlines():
            words = line.split('"')
            if len(words) == 3 and words[0].strip() == "topic":
                found[words[1]] = int(words[2].split()[1])
        return found

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return KcatMember(self.bootstrap, group, topic, protocol)

    def stream(self, topic: str) -> Stream:
        return KcatStream(self.bootstrap, topic)

    def _query(self, topic: str, partition: int, when: int) -> int:
        answer = self._run(["-Q", "-t", f"{topic}:{partition}:{when}"]).decode()
        return int(answer.rsplit("offset", 1)[1])

    def _run(self, arguments: Sequence[str], given: bytes = b"") -> bytes:
        command = ["kcat", "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise RefusedError(0, done.stderr.decode(errors="replace"))
        return done.stdout


class KcatMember(Member):
    """A kcat consumer, which commits automatically at an interval and at its end."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        strategy = "cooperative-sticky" if protocol == COOPERATIVE else "range"
        command = [
            "kcat",
            "-E",
            "-b",
            bootstrap,
            "-G",
            group,
            "-u",
            "-f",
            "%p %o %S %s\n",
            "-X",
            "auto.offset.reset=earliest",
        ]
        settings = (f"partition.assignment.strategy={strategy}", "heartbeat.interval.ms=300", "fetch.wait.max.ms=100")
        command += [word for setting in settings for word in ("-X", setting)]
        self._received: list[Received] = []
        self._assigned: frozenset[int] = frozenset()
        self._process = subprocess.Popen([*command, topic], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._watch, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def assigned(self) -> frozenset[int]:
        return self._assigned

    def received(self) -> list[Received]:
        return list(self._received)

    def commit(self) -> None:
        return

    def leave(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(2 * TIMEOUT_S)
        finally:
            self._process.kill()
            for thread in self._threads:
                thread.join()
            for pipe in (self._process.stdout, self._process.stderr):
                assert pipe is not None
                pipe.close()
            self._process.wait()

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            partition, offset, size, value = line.rstrip(b"\n").split(b" ", 3)
            self._received.append(Received(int(partition), int(offset), None if int(size) < 0 else value))

    def _watch(self, pipe: IO[bytes]) -> None:
        """Parse lines such as "% Group x rebalanced (memberid y): assigned: topic [0], topic [1]".

        The other words are "revoked" and, in cooperative groups, "incremental assignment" and "incremental revoke".
        """
        for line in pipe:
            text = line.decode(errors="replace")
            places = frozenset(map(int, _ASSIGNED.findall(text)))
            if "): assigned" in text or "incremental assignment" in text:
                self._assigned |= places
            elif "): revoked" in text or "incremental revoke" in text:
                self._assigned -= places


class KcatStream(Stream):
    """A kcat producer. It reads its input in blocks, so it sends the last messages with later ones or at the end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        command = ["kcat", "-E", "-b", bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true"]
        quick = ["-X", "linger.ms=0", "-X", "reconnect.backoff.max.ms=1000"]
        self._process = subprocess.Popen([*command, *quick], stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def send(self, messages: Sequence[Message]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join((message.value or b"") + b"\n" for message in messages))
        self._process.stdin.flush()

    def close(self) -> None:
        try:
            _, complaints = self._process.communicate(timeout=2 * TIMEOUT_S)
        finally:
            self._process.kill()
        if self._process.returncode:
            raise RefusedError(0, complaints.decode(errors="replace"))


def _take(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    """Split off `size` bytes; kcat writes -1 as the size of a null."""
    return (None, data) if size < 0 else (data[:size], data[size:])


def _headers(text: str) -> Headers:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if content == "NULL" else content.encode()) for name, _, content in pairs)

"""kcat: the command line over Debian's older librdkafka."""

import subprocess
from collections.abc import Mapping, Sequence

from interop.clients.client import TIMEOUT_S, Client, Headers, Message, RefusedError, Stored

_KEY_MARK = "\x1f"
_LINE_MARK = "\x1e"


class KcatClient(Client):
    name = "kcat"

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """The same headers for all, no time stamps, and nothing where something is empty."""
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

    def _query(self, topic: str, partition: int, when: int) -> int:
        answer = self._run(["-Q", "-t", f"{topic}:{partition}:{when}"]).decode()
        return int(answer.rsplit("offset", 1)[1])

    def _run(self, arguments: Sequence[str], given: bytes = b"") -> bytes:
        command = ["kcat", "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            raise RefusedError(0, done.stderr.decode(errors="replace"))
        return done.stdout


def _take(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    """That many bytes, and what follows; kcat tells -1 for nothing at all."""
    return (None, data) if size < 0 else (data[:size], data[size:])


def _headers(text: str) -> Headers:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if content == "NULL" else content.encode()) for name, _, content in pairs)

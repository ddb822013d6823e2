"""Drives Apache Kafka's command line tools: long-running ones in their own process, the others in the servant."""

import base64
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from interop.clients.ability import Ability
from interop.clients.client import (
    COOPERATIVE,
    EAGER,
    NEW,
    TIMEOUT_S,
    AdminClient,
    GroupView,
    Headers,
    Member,
    Message,
    Received,
    RefusedError,
    Stored,
    Stream,
    ToldSetting,
)
from interop.clients.java import build, java
from interop.clients.servant import Servant

TOOLS = "org.apache.kafka.tools"
_FIELD, _LINE, _NOTHING = "\x1f", "\x1e", "\x1d"


@dataclass(frozen=True, slots=True)
class Said:
    """The exit code and the two output streams of a tool."""

    code: int
    output: str
    errors: str


class JavaToolsClient(AdminClient):
    name = "java-tools"
    cannot: ClassVar[Mapping[Ability, str]] = {
        Ability.PLACE: "the console producer selects the partition by the key",
    }

    def __init__(self, bootstrap: str, servant: Servant | None = None) -> None:
        super().__init__(bootstrap)
        self._servant = servant or Servant()

    def close(self) -> None:
        self._servant.close()

    def tool(self, tool: str, *arguments: str, given: bytes = b"") -> Said:
        """Run a tool, given by its class, to its end."""
        order = {
            "do": "tool",
            "tool": tool,
            "arguments": ["--bootstrap-server", self.bootstrap, *arguments],
            "input": base64.b64encode(given).decode(),
        }
        answer: Mapping[str, Any] = self._servant.ask(java("Servant"), order)
        output, errors = (base64.b64decode(answer[name]).decode() for name in ("output", "errors"))
        return Said(answer["code"], output, errors)

    def apart(self, tool: str, *arguments: str) -> Said:
        """Run a tool that completes only at the end of its process, in a process of its own."""
        command = java(tool, "--bootstrap-server", self.bootstrap, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIMEOUT_S, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def expressible(self, messages: Sequence[Message]) -> list[Message]:
        """Drop timestamps and headers without a value."""
        return [
            Message(message.value, message.key, tuple((name, content or b"") for name, content in message.headers))
            for message in messages
        ]

    def write(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        assert partition == 0, self.cannot[Ability.PLACE]
        form = {
            "parse.headers": "true",
            "headers.delimiter": _FIELD,
            "parse.key": "true",
            "key.separator": _FIELD,
            "null.marker": _NOTHING,
        }
        self._run(
            f"{TOOLS}.ConsoleProducer",
            *("--topic", topic, "--compression-codec", compression),
            *_properties("--command-property", {"acks": "all", "enable.idempotence": str(idempotent).lower()}),
            *_properties("--reader-property", form),
            given=b"".join(_line(message) for message in messages),
        )
        return []

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        wanted = ("timestamp", "offset", "headers", "key", "value")
        form = {f"print.{part}": "true" for part in wanted} | {
            "key.separator": _FIELD,
            "line.separator": _LINE,
            "null.literal": _NOTHING,
        }
        said = self._run(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--topic", topic, "--partition", str(partition), "--offset", str(offset)),
            *("--max-messages", str(count), "--timeout-ms", str(int(TIMEOUT_S * 1000))),
            *_properties("--command-property", {"fetch.max.wait.ms": "20"}),
            *_properties("--formatter-property", form),
        )
        return [_stored(line) for line in said.output.split(_LINE)[:-1]]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        first, following = self.offset_for_time(topic, partition, -2), self.offset_for_time(topic, partition, -1)
        assert first is not None
        assert following is not None
        return first, following

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        asked = ("--topic-partitions", f"{topic}:{partition}", "--time", str(timestamp_ms))
        offset = self._run(f"{TOOLS}.GetOffsetShell", *asked).output.strip().rpartition(":")[2]
        return int(offset) if offset else None

    def topics(self) -> Mapping[str, int]:
        output = self._run(f"{TOOLS}.TopicCommand", "--describe").output
        return {name: int(count) for name, count in re.findall(r"Topic: (\S+)\s.*PartitionCount: (\d+)", output)}

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        shape = ("--partitions", str(partitions), "--replication-factor", str(replication_factor))
        chosen = _properties("--config", settings or {})
        self._run(f"{TOOLS}.TopicCommand", "--create", "--topic", name, *shape, *chosen)

    def delete_topic(self, name: str) -> None:
        self._run(f"{TOOLS}.TopicCommand", "--delete", "--topic", name)

    def grow(self, topic: str, total: int) -> None:
        self._run(f"{TOOLS}.TopicCommand", "--alter", "--topic", topic, "--partitions", str(total))

    def settings(self, topic: str) -> Mapping[str, ToldSetting]:
        output = self._configs("--entity-name", topic, "--describe", "--all").output
        rows = re.findall(r"^\s+(\S+?)=(\S*) sensitive=\S+ synonyms=\{(\w*)", output, flags=re.MULTILINE)
        return {name: ToldSetting(value, source == "DYNAMIC_TOPIC_CONFIG") for name, value, source in rows}

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        changes = ",".join(f"{name}=[{value}]" for name, value in settings.items())
        self._configs("--entity-name", topic, "--alter", "--add-config", changes)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        wanted = {"partitions": [{"topic": topic, "partition": partition, "offset": before}], "version": 1}
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "before.json"
            file.write_text(json.dumps(wanted))
            said = self._run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
        return int(said.output.rpartition("low_watermark: ")[2])

    def groups(self) -> set[str]:
        return set(self._groups("--list").output.split())

    def describe_group(self, group: str) -> GroupView:
        (row,) = _table(self._groups("--describe", "--group", group, "--state").output)
        return GroupView(row["STATE"].lower(), int(row["#MEMBERS"]))

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        rows = _table(self._groups("--describe", "--group", group, "--offsets").output)
        return {
            int(row["PARTITION"]): int(row["CURRENT-OFFSET"])
            for row in rows
            if row["TOPIC"] == topic and row["CURRENT-OFFSET"] != "-"
        }

    def reset_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "offsets.csv"
            file.write_text("".join(f"{topic},{partition},{offset}\n" for partition, offset in offsets.items()))
            self._groups("--reset-offsets", "--group", group, "--from-file", str(file), "--execute")

    def delete_group(self, group: str) -> None:
        self._groups("--delete", "--group", group)

    def join(self, group: str, topic: str, protocol: str = EAGER) -> Member:
        return VerifiableMember(self.bootstrap, group, topic, protocol)

    def stream(self, topic: str) -> Stream:
        return ConsoleStream(self.bootstrap, topic)

    def _groups(self, *arguments: str) -> Said:
        return self._run(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *arguments)

    def _configs(self, *arguments: str) -> Said:
        return self._run("kafka.admin.ConfigCommand", "--entity-type", "topics", *arguments)

    def _run(self, tool: str, *arguments: str, given: bytes = b"") -> Said:
        """Run a tool and raise RefusedError for an error in its output: most tools exit with 0 after an error."""
        said = self.tool(tool, *arguments, given=given)
        if said.code or "Error" in said.output + said.errors or "Exception" in said.errors:
            raise RefusedError(-1, said.output + said.errors)
        return said


class VerifiableMember(Member):
    """The verifiable consumer, which reports every event and commits received messages at once."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        where = ("--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic, "--verbose")
        how = ["--group-protocol", "consumer"]
        if protocol != NEW:
            assignor = "CooperativeStickyAssignor" if protocol == COOPERATIVE else "RangeAssignor"
            how = ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
            how += ["--command-config", str(build() / "classic.properties")]
        command = java(f"{TOOLS}.VerifiableConsumer", *where, *how)
        self._received: list[Received] = []
        self._assigned: frozenset[int] = frozenset()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._follow, args=(self._process.stdout,), daemon=True)
        self._thread.start()

    def assigned(self) -> frozenset[int]:
        return self._assigned

    def received(self) -> list[Received]:
        return list(self._received)

    def commit(self) -> None:
        return

    def leave(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(2 * TIMEOUT_S)
        finally:
            self._process.kill()
            self._thread.join()
            self._process.communicate()

    def _follow(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            event = json.loads(line)
            if event["name"] == "record_data":
                self._received.append(Received(event["partition"], event["offset"], event["value"].encode()))
            elif event["name"] == "partitions_assigned":
                self._assigned |= {place["partition"] for place in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                self._assigned -= {place["partition"] for place in event["partitions"]}


class ConsoleStream(Stream):
    """The console producer. Its default number of retries assumes a broker that is up."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        where = ("--bootstrap-server", bootstrap, "--topic", topic, "--message-send-max-retries", "1000")
        command = java(f"{TOOLS}.ConsoleProducer", *where, "--command-property", "enable.idempotence=true")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def send(self, messages: Sequence[Message]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join((message.value or b"") + b"\n" for message in messages))
        self._process.stdin.flush()

    def close(self) -> None:
        try:
            _, complaints = self._process.communicate(timeout=2 * TIMEOUT_S)
        finally:
            self._process.kill()
        if self._process.returncode or b"Exception" in complaints:
            raise RefusedError(-1, complaints.decode(errors="replace"))


def _properties(flag: str, properties: Mapping[str, str]) -> list[str]:
    return [word for name, value in properties.items() for word in (flag, f"{name}={value}")]


def _line(message: Message) -> bytes:
    headers = b",".join(name.encode() + b":" + (content or b"") for name, content in message.headers)
    parts = (headers or None, message.key, message.value)
    return _FIELD.encode().join(_NOTHING.encode() if part is None else part for part in parts) + b"\n"


def _stored(line: str) -> Stored:
    timestamp, offset, headers, key, value = line.split(_FIELD)
    number = int(offset.removeprefix("Offset:"))
    timestamp_ms = int(timestamp.partition(":")[2])
    return Stored(number, Message(_content(value), _content(key), _headers(headers), timestamp_ms))


def _headers(text: str) -> Headers:
    if text == "NO_HEADERS":
        return ()
    pairs = (pair.partition(":") for pair in text.split(","))
    return tuple((name, _content(content)) for name, _, content in pairs)


def _content(text: str) -> bytes | None:
    return None if text == _NOTHING else text.encode()


def _table(output: str) -> list[Mapping[str, str]]:
    """Parse the rows below a heading; spaces separate columns, and only the coordinator column contains one."""
    lines = [re.sub(r" +\((\S*)\)", r"_(\1)", line).split() for line in output.splitlines() if line.strip()]
    heads = next((number for number, line in enumerate(lines) if line[0] == "GROUP"), len(lines))
    return [dict(zip(lines[heads], row, strict=True)) for row in lines[heads + 1 :]]

"""Runs the brokers under test as real processes: Millstream from this working tree, and Kafka from Maven's jars."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "bench" / ".work"
POM = ROOT / "bench" / "kafka" / "pom.xml"
KAFKA_VERSION = "4.3.0"
READY_TIMEOUT_S = 120.0


class Peer(ABC):
    """One broker: its files, its command line, and its process while it runs."""

    name: str
    flush_settings: Mapping[str, str]
    """Topic settings that make this broker flush before it acknowledges."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.begun_s = 0.0
        """Monotonic time at which the process was started."""
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Prepares an empty data directory; not part of the start time."""

    @abstractmethod
    def command(self, *, flush_always: bool) -> Sequence[str]:
        """Returns the command line that starts the broker on `self.port`."""

    @abstractmethod
    def version(self) -> str:
        """Returns the version for the results page."""

    def environment(self) -> dict[str, str]:
        """Returns the environment variables of the process."""
        return dict(os.environ, LOG_DIR=str(self.directory))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, flush_always: bool = False) -> float:
        """Starts with an empty directory; returns the seconds from process start to the first Metadata response."""
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.port = unused_port()
        self.prepare()
        return self.launch(flush_always=flush_always)

    def launch(self, *, flush_always: bool = False) -> float:
        """Starts with the existing data; returns the seconds from process start to the first Metadata response."""
        log = (self.directory / "broker.log").open("ab")
        begin = self.begun_s = time.monotonic()
        with log:
            self._process = subprocess.Popen(
                list(self.command(flush_always=flush_always)),
                cwd=self.directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
            )
        while not answers_metadata(self.port):
            if self._process.poll() is not None or time.monotonic() - begin > READY_TIMEOUT_S:
                self.stop()
                raise RuntimeError(f"{self.name} did not start:\n{(self.directory / 'broker.log').read_text()[-4000:]}")
            time.sleep(0.005)
        return time.monotonic() - begin

    def stop(self) -> None:
        """Stops the process and deletes its data."""
        self.end()
        for data in self.directory.glob("data*"):
            shutil.rmtree(data, ignore_errors=True)

    def end(self) -> None:
        """Stops the process and keeps its data. After an interrupt, it can be called again."""
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._process = None


class Millstream(Peer):
    """The broker of this working tree, started by its command."""

    name = "Millstream"
    flush_settings: Mapping[str, str] = {}
    program: Sequence[str] = (str(Path(sys.executable).with_name("millstream")),)
    """Path of the installed command."""

    def prepare(self) -> None:
        # An installation compiles the modules too. Without this, every start would compile all modules if Python is
        # configured not to write byte code.
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src")], check=True)
        (self.directory / "data").mkdir()

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return [
            *self.program,
            "serve",
            *("--data", str(self.directory / "data")),
            *("--host", "127.0.0.1"),
            *("--kafka-port", str(self.port)),
            *("--operator-port", str(unused_port())),
            *("--http-port", "off", "--grpc-port", "off"),
            *("--flush", "always" if flush_always else "os"),
        ]

    def version(self) -> str:
        commit = _git("rev-parse", "--short", "HEAD") or "unknown"
        # Ignore changed results of an earlier run.
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/*.md", ":!bench/plots")
        return f"Millstream, commit {commit}, {'with changes' if changed else 'nothing changed'}"


class Kafka(Peer):
    """Apache Kafka in KRaft mode, as one process that is both broker and controller."""

    name = "Kafka"
    flush_settings: Mapping[str, str] = {"flush.messages": "1"}

    heap = "1G"

    def __init__(self, directory: Path, libs: Path = WORK / "kafka" / "libs", host: str = "127.0.0.1") -> None:
        super().__init__(directory)
        self.libs = libs
        self.advertised_host = host

    def fetch(self) -> None:
        """Downloads the jars unless they exist."""
        if list(self.libs.glob(f"kafka_2.13-{KAFKA_VERSION}.jar")):
            return
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                raise RuntimeError(f"bench: {tool} is missing; install it: apt-get install default-jre-headless maven")
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={self.libs}"], check=True)

    def prepare(self) -> None:
        controller = unused_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.advertised_host}:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Deleted topics leave the page cache before the next round rather than a minute later.
            "log.segment.delete.delay.ms": "500",
        }
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        made = self._tool("kafka.tools.StorageTool", "random-uuid")
        cluster = made.strip().splitlines()[-1]
        self._tool("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(properties))

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return [
            *self._java(f"-Xms{self.heap}", f"-Xmx{self.heap}"),
            "kafka.Kafka",
            str(self.directory / "server.properties"),
        ]

    def version(self) -> str:
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
        return f"Apache Kafka {KAFKA_VERSION} on {java}, heap {self.heap}"

    def _java(self, *flags: str) -> list[str]:
        return ["java", *flags, "-cp", f"{self.libs}/*"]

    def _tool(self, *arguments: str) -> str:
        command = [*self._java(), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def _git(*arguments: str) -> str:
    """Returns git's output for this working tree; empty if git or the history is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def unused_port() -> int:
    """Returns a port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers_metadata(port: int) -> bool:
    """True if a Metadata request (version 1, no topic) is answered with at least one broker."""
    body = struct.pack(">hhih5si", 3, 1, 7, 5, b"bench", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.recv(4096)
    except OSError:
        return False
    return len(answer) >= 12 and struct.unpack_from(">ii", answer, 4) >= (7, 1)

"""Runs a real broker process for tests: the `millstream serve` command on free ports, which always ends with the test.

with RealBroker(tmp_path / "data") as broker:
    ...                 # clients connect to broker.bootstrap
    broker.kill()       # as kill -9 does
    broker.start()      # the same ports, the same data
"""

import atexit
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.testing.held_ports import HeldPorts

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

_READY = re.compile(rb"is ready on (?P<host>\S+):(?P<port>\d+) ")
_OPERATOR = re.compile(rb"http://\S+:(?P<port>\d+)/metrics")
_GATEWAY = re.compile(rb"gateway is ready: web API on http://\S+:(?P<http>\d+)(?:, gRPC on \S+:(?P<grpc>\d+))?\n")
_LAST_LINE = re.compile(rb"Ctrl-C stops it\.\n")


class BrokerFailedError(RuntimeError):
    """The process did not behave as expected; the text has its output."""


class RealBroker:
    """`millstream serve` as a child process. The first start chooses free ports, and later starts reuse them."""

    def __init__(
        self,
        data_dir: Path | str,
        flush: str = "always",
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        *,
        gateway: bool = False,
    ) -> None:
        """With `gateway`, the process also starts a gateway on `http_port` and `grpc_port`."""
        self.data_dir = Path(data_dir)
        self.flush = flush
        self.extra_args = tuple(extra_args)
        self.port = 0
        self.operator_port = 0
        self.http_port = 0
        self.grpc_port = 0
        self._has_gateway = gateway
        self._held_ports = HeldPorts()
        self._output = b""
        self._env = dict(env or {})
        self._log_path = self.data_dir.with_name(self.data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """The output of the process, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start the broker, and return when clients can connect. Raise BrokerFailedError with the log on failure."""
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def launch(self) -> None:
        """Start without waiting, for tests that end the process before it is ready."""
        if self.is_running:
            raise BrokerFailedError("the broker is running already")
        self._release()
        self._output = b""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self._environment()
            )
        atexit.register(self.close)

    def command(self) -> list[str]:
        """The command line of the process."""
        ports = ["--kafka-port", str(self.port), "--operator-port", str(self.operator_port)]
        gateway = (str(self.http_port), str(self.grpc_port)) if self._has_gateway else ("off", "off")
        ports += ["--http-port", gateway[0], "--grpc-port", gateway[1]]
        fixed = ["serve", "--data", str(self.data_dir), "--flush", self.flush, *ports]
        return [sys.executable, "-m", "millstream.cli", *fixed, *self.extra_args]

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the process, and its gateway, have reported that they are ready."""
        end_s = time.monotonic() + timeout_s
        output = self._wait_for_output(_LAST_LINE, end_s)
        ready, operator = _READY.search(output), _OPERATOR.search(output)
        if ready is None:
            self.close()
            raise BrokerFailedError(f"the ready line is not as expected:\n{output.decode()}")
        self.port = int(ready["port"])
        self.operator_port = int(operator["port"]) if operator else self.operator_port
        if self._has_gateway:
            self.wait_gateway(end_s - time.monotonic())
        self._held_ports.release()

    def wait_gateway(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until a gateway has reported that it is ready, which it does after each of its starts."""
        gateway = _GATEWAY.search(self._wait_for_output(_GATEWAY, time.monotonic() + timeout_s))
        assert gateway is not None
        self.http_port, self.grpc_port = int(gateway["http"]), int(gateway["grpc"] or 0)

    def _wait_for_output(self, awaited: "re.Pattern[bytes]", end_s: float) -> bytes:
        """Return the output up to a pattern. Later output is left for the next call."""
        while (found := awaited.search(self._output)) is None:
            piece = self._read_output(end_s - time.monotonic())
            if not piece:
                self.close()
                raise BrokerFailedError(f"the broker did not get ready:\n{self._output.decode()}{self.log_text()}")
            self._output += piece
        output, self._output = self._output[: found.end()], self._output[found.end() :]
        with open(self._log_path, "ab") as log:
            log.write(output)
        return output

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End the broker as an operator does (SIGTERM), and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_ended(timeout_s)

    def kill(self) -> None:
        """End the broker at once (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self.wait_ended()

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it on the same ports and data."""
        if self.is_running:
            self.stop()
        return self.start()

    def signal(self, number: int) -> None:
        self._running().send_signal(number)

    def wait_ended(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process has ended, and return its exit code. Negative codes are signals."""
        process = self._process
        if process is None:
            raise BrokerFailedError("the broker was not started")
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise BrokerFailedError(f"the broker did not end within {timeout_s:g} s:\n{self.log_text()}") from None
        self._release()
        self._held_ports.hold(port for port in self._ports() if port)
        return code

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._release()
        self._held_ports.release()

    def _ports(self) -> tuple[int, ...]:
        return (self.port, self.operator_port, self.http_port, self.grpc_port)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            raise BrokerFailedError(f"the broker is not running:\n{self.log_text()}")
        return self._process

    def _release(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            process.stdout.close()
        atexit.unregister(self.close)

    def _read_output(self, timeout_s: float) -> bytes:
        """Read available standard output. Return b"" if the process ended or wrote nothing in time."""
        output = self._running_output()
        poll = select.poll()
        poll.register(output, select.POLLIN | select.POLLHUP)
        return os.read(output, 65536) if poll.poll(max(0.0, timeout_s) * 1000) else b""

    def _running_output(self) -> int:
        if self._process is None or self._process.stdout is None:
            raise BrokerFailedError("the broker was not started")
        return self._process.stdout.fileno()

    def _environment(self) -> dict[str, str]:
        """This process's environment without Millstream settings, which would be meant for another broker."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        return inherited | self._env

"""Runs one broker of a local cluster as a process, and tracks its port, its output and its readiness."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import TABLE, BrokerSettings
from millstream.process.addresses import reachable_host
from millstream.process.control_protocol import BrokerFacts, NewCluster
from millstream.process.parent_watch import CONTROL_VARIABLE, PARENT_VARIABLE, environment_of_child
from millstream.process.settings import ENVIRONMENT_PREFIX, PORT_OFF
from millstream.supervisor.children import Child, millstream_command
from millstream.supervisor.clusters.broker_output import BrokerOutput
from millstream.supervisor.last_lines import ended

STOP_LIMIT_S = 20.0
_READY = re.compile(rb"is ready on (\S+):(\d+) ")


class ManagedBroker:
    """A broker process. It takes any free port at the first start, and the same port at every later start."""

    def __init__(
        self,
        cluster: NewCluster,
        node_id: int,
        place: Path,
        port: int,
        like: BrokerSettings,
        changed: Callable[[], None],
        control: Path,
    ) -> None:
        self._settings = _settings_of(cluster, node_id, place, like)
        self._output = BrokerOutput(cluster.name, node_id, like.log_format)
        self._ready: asyncio.Future[None] | None = None
        self._is_up = False
        self._problem = ""
        self._port = port
        self._changed = changed
        name = f"broker {node_id} of {cluster.name}"
        self._child = Child(
            name,
            self._command,
            _environment(control),
            on_output=self._on_output_line,
            on_error=self._output.copy,
            on_end=self._ended,
        )

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def facts(self) -> BrokerFacts:
        host = reachable_host(self._settings.host)
        return BrokerFacts(self._settings.node_id, host, self._port, self._is_up, self._problem)

    def start(self) -> None:
        """Starts the broker and keeps it running, without waiting until it is ready (see `first_start`)."""
        self._child.start()

    async def first_start(self, limit_s: float) -> None:
        """Starts the broker and returns when it is ready. Raises CLUSTER_NOT_STARTED with the reason if it fails."""
        self._ready = asyncio.get_running_loop().create_future()
        self._child.start()
        try:
            await asyncio.wait_for(self._ready, limit_s)
        except TimeoutError:
            raise self._failure(f"was not ready after {limit_s:g} s") from None
        finally:
            self._ready = None

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        await self._child.stop(limit_s)
        self._problem = ""

    def _command(self) -> Sequence[str]:
        settings = msgspec.structs.replace(self._settings, kafka_port=self._port)
        return millstream_command("serve", *TABLE.as_flags(settings))

    def _on_output_line(self, line: bytes) -> None:
        ready = _READY.search(line)
        if ready is None:
            return
        self._port, self._is_up, self._problem = int(ready[2]), True, ""
        self._changed()
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _ended(self, code: int) -> None:
        failure = self._failure(ended(code), code)
        self._is_up, self._problem = False, failure.detail
        self._changed()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure)

    def _failure(self, how: str, code: int | None = None) -> MillstreamError:
        reason = self._output.take_failure(code)
        detail = f"{self._child.name} {how}" + (f": {reason}" if reason else "")
        return MillstreamError(ErrorCode.CLUSTER_NOT_STARTED, detail)


def _settings_of(cluster: NewCluster, node_id: int, place: Path, like: BrokerSettings) -> BrokerSettings:
    """Returns the settings `like`, with the broker's own data directory, id and ports, and the cluster's settings."""
    configured = {
        "default_partitions": cluster.partitions,
        "retention_ms": cluster.retention_ms,
        "retention_bytes": cluster.retention_bytes,
    }
    return msgspec.structs.replace(
        like,
        data=(str(place),),
        node_id=node_id,
        kafka_port=0,
        operator_port=PORT_OFF,
        http_port=PORT_OFF,
        grpc_port=PORT_OFF,
        **{name: value for name, value in configured.items() if value is not None},
    )


def _environment(control: Path) -> dict[str, str]:
    """Returns this process's environment without settings, because the broker receives its settings as flags."""
    ours = environment_of_child()
    ours = {name: ours[name] for name in ours if not name.startswith(ENVIRONMENT_PREFIX) or name == PARENT_VARIABLE}
    return {**ours, CONTROL_VARIABLE: str(control)}

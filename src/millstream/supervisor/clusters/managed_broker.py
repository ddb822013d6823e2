"""One broker of a cluster as a process: its port, its output, whether it is up."""

import asyncio
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import TABLE, BrokerSettings
from millstream.process.addresses import reachable_host
from millstream.process.control_protocol import BrokerFacts, NewCluster
from millstream.process.parent_watch import environment_of_child
from millstream.process.settings import ENVIRONMENT_PREFIX, PARENT_VARIABLE, PORT_OFF
from millstream.supervisor.children import Child, millstream_command

log = logging.getLogger(__name__)

STOP_LIMIT_S = 20.0
_LINES_KEPT = 12
_READY = re.compile(rb"is ready on (\S+):(\d+) ")


class ManagedBroker:
    """Started with any free port the first time, and with the one it had then at every later start."""

    def __init__(
        self,
        cluster: NewCluster,
        node_id: int,
        place: Path,
        port: int,
        like: BrokerSettings,
        changed: Callable[[], None],
    ) -> None:
        self._settings = _settings_of(cluster, node_id, place, like)
        self._label = _label(cluster.name, node_id, like.log_format)
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._up: asyncio.Future[None] | None = None
        self._is_up = False
        self._problem = ""
        self._port = port
        self._changed = changed
        name = f"broker {node_id} of {cluster.name}"
        self._child = Child(
            name,
            self._command,
            _environment(),
            on_output=self._hear,
            on_error=self._pass_on,
            on_end=self._ended,
        )

    @property
    def port(self) -> int:
        return self._port

    def facts(self) -> BrokerFacts:
        host = reachable_host(self._settings.host)
        return BrokerFacts(self._settings.node_id, host, self._port, self._is_up, self._problem)

    def start(self) -> None:
        """Start it, and keep it running; `first_start` also waits."""
        self._child.start()

    async def first_start(self, limit_s: float) -> None:
        """Start it, and come back when it serves. CLUSTER_NOT_STARTED, saying why, when it does not."""
        self._up = asyncio.get_running_loop().create_future()
        self._child.start()
        try:
            await asyncio.wait_for(self._up, limit_s)
        except TimeoutError:
            raise self._failure(f"was not ready after {limit_s:g} s") from None
        finally:
            self._up = None

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        await self._child.stop(limit_s)
        self._problem = ""

    def _command(self) -> Sequence[str]:
        settings = msgspec.structs.replace(self._settings, kafka_port=self._port)
        return millstream_command("serve", *TABLE.as_flags(settings))

    def _hear(self, line: bytes) -> None:
        ready = _READY.search(line)
        if ready is None:
            return
        self._port, self._is_up, self._problem = int(ready[2]), True, ""
        self._changed()
        if self._up is not None and not self._up.done():
            self._up.set_result(None)

    def _pass_on(self, line: bytes) -> None:
        """Its log goes into ours, with whose it is."""
        self._said.append(line.decode(errors="replace").strip())
        is_row = self._label.startswith("{") and line.startswith(b"{")
        try:
            sys.stderr.write(self._label + line[is_row:].decode(errors="replace"))
            sys.stderr.flush()
        except OSError:
            pass  # Nobody reads it; that is no reason not to serve.

    def _ended(self, code: int) -> None:
        failure = self._failure(f"ended with {code}")
        self._said.clear()
        self._is_up, self._problem = False, failure.detail
        self._changed()
        if self._up is not None and not self._up.done():
            self._up.set_exception(failure)

    def _failure(self, how: str) -> MillstreamError:
        said = "; ".join(line for line in self._said if line.startswith("millstream:")) or " ".join([*self._said][-1:])
        detail = f"{self._child.name} {how}" + (f": {said.removeprefix('millstream: ')}" if said else "")
        return MillstreamError(ErrorCode.CLUSTER_NOT_STARTED, detail)


def _settings_of(cluster: NewCluster, node_id: int, place: Path, like: BrokerSettings) -> BrokerSettings:
    """What the supervising broker was told, but for what is a broker's own, and what the cluster was asked to have."""
    said = {
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
        **{name: value for name, value in said.items() if value is not None},
    )


def _environment() -> dict[str, str]:
    """Ours, without settings: what we were told reaches it by flags."""
    ours = environment_of_child()
    return {name: ours[name] for name in ours if not name.startswith(ENVIRONMENT_PREFIX) or name == PARENT_VARIABLE}


def _label(cluster: str, node_id: int, log_format: str) -> str:
    return f'{{"cluster":"{cluster}","broker":{node_id},' if log_format == "json" else f"[{cluster} {node_id}] "

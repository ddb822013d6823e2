"""Tests that a control client waits for a supervisor that does not listen yet, up to a limit."""

import asyncio
from pathlib import Path

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, Control, ControlRequest
from millstream.supervisor.child_pings import ChildPings
from millstream.supervisor.control_socket import ControlSocket

FACTS = (ClusterFacts("orders", (), False, (), None, None, None),)


async def served(request: ControlRequest) -> tuple[ClusterFacts, ...]:
    return FACTS


def test_a_waiting_client_is_answered_once_the_supervisor_listens(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / SOCKET_NAME
        path.touch()  # Left by a supervisor that was killed.
        asking = asyncio.create_task(Control(path, 60.0).ask(ControlRequest("list")))
        await asyncio.sleep(0)
        socket = ControlSocket(path, served, lambda: FACTS, lambda gateways: None, ChildPings())
        await socket.open()
        assert await asking == FACTS
        socket.close()

    asyncio.run(story())


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
def test_a_control_request_fails_after_its_timeout_without_a_supervisor(tmp_path: Path, patience_s: float) -> None:
    with pytest.raises(MillstreamError) as caught:
        asyncio.run(Control(tmp_path / SOCKET_NAME, patience_s).ask(ControlRequest("list")))
    assert caught.value.code is ErrorCode.NO_SUPERVISOR

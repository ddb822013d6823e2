"""Who asks a supervisor before it listens waits a moment, if told to; and is told when nobody comes."""

import asyncio
from pathlib import Path

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.control_protocol import SOCKET_NAME, ClusterFacts, Control, ControlRequest
from millstream.supervisor.control_socket import ControlSocket

FACTS = (ClusterFacts("orders", (), False, (), None, None, None),)


async def served(request: ControlRequest) -> tuple[ClusterFacts, ...]:
    return FACTS


def test_a_patient_caller_is_answered_when_the_supervisor_comes(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / SOCKET_NAME
        path.touch()  # What a killed one has left.
        asking = asyncio.create_task(Control(path, 60.0).ask(ControlRequest("list")))
        await asyncio.sleep(0)
        socket = ControlSocket(path, served, lambda: FACTS, lambda gateways: None)
        await socket.open()
        assert await asking == FACTS
        socket.close()

    asyncio.run(story())


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
def test_patience_ends(tmp_path: Path, patience_s: float) -> None:
    with pytest.raises(MillstreamError) as caught:
        asyncio.run(Control(tmp_path / SOCKET_NAME, patience_s).ask(ControlRequest("list")))
    assert caught.value.code is ErrorCode.NO_SUPERVISOR

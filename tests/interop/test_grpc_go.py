"""Tests a Go client, generated from the published gRPC contract, against a gateway."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from builders.gateways.grpc import HOST, grpc_gateway
from interop.clients.grpc_go import build

TIMEOUT_S = 120


async def run_client(bootstrap: str, topic: str, group: str) -> Any:
    """Run the client and return its report."""
    program = build() / "client"
    async with grpc_gateway(bootstrap) as served:
        process = await asyncio.create_subprocess_exec(
            program, f"{HOST}:{served.server.port}", topic, group, stdout=-1, stderr=-1
        )
        try:
            told, problem = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, problem.decode()
    return json.loads(told)


def test_a_generated_go_client_writes_reads_polls_and_gets_error_names(
    bootstrap: str, new_name: Callable[[], str]
) -> None:
    told = asyncio.run(run_client(bootstrap, new_name(), new_name()))
    assert told["created"]
    assert told["put"] == [1, 0, 1, 0], "the second put of an id returns the offset of the first"
    assert told["stream"] == list(range(30))
    streamed = [f"{number}.{row}" for number in range(10) for row in range(3)]
    assert sorted(told["got"]) == sorted(["first", *streamed])
    assert [value for value in told["got"] if value != "first"] == streamed
    assert told["tailed"] == "live"
    assert told["polled"] == 32
    assert told["refused"] == [
        {"Code": "AlreadyExists", "Reason": "TOPIC_ALREADY_EXISTS", "Domain": "millstream", "Field": ""},
        {"Code": "InvalidArgument", "Reason": "INVALID_TOPIC", "Domain": "millstream", "Field": "name"},
    ]

"""Runs every example of docs/grpc.md, in order, against a gateway."""

import asyncio
import os
import sys
from pathlib import Path

from builders.gateways.grpc import HOST, grpc_gateway
from integration.test_readme import examples
from interop.clients.grpc_go import build
from millstream.testing.embedded import EmbeddedBroker

PAGE = Path(__file__).parents[2] / "docs" / "grpc.md"
TIMEOUT_S = 120


async def printed(command: list[str], environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment
    )
    told, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    return told.decode()


def test_every_example_of_the_page_prints_its_documented_output() -> None:
    environment = os.environ | {"PATH": f"{build() / 'plugins'}{os.pathsep}{os.environ['PATH']}"}

    async def story(bootstrap: str) -> None:
        async with grpc_gateway(bootstrap) as served:
            for example in examples(PAGE.read_text(encoding="utf-8")):
                source = example.source.replace("localhost:9095", f"{HOST}:{served.server.port}")
                shell = ["sh", "-c"] if example.language == "sh" else [sys.executable, "-c"]
                assert await printed([*shell, source], environment) == example.output, example.source

    with EmbeddedBroker() as broker:
        asyncio.run(story(broker.bootstrap))

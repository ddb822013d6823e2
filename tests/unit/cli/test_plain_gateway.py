"""Tests that a gateway's flags give the same settings with and without Typer, repeated flags included."""

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.cli.commands import gateway
from millstream.gateway.settings import GatewaySettings

LINES: list[tuple[Sequence[str], GatewaySettings | None]] = [
    ((), GatewaySettings()),
    (("--bootstrap", "a:1,b:2"), GatewaySettings(bootstrap=("a:1", "b:2"))),
    (("--cluster", "x=a:1,b:2", "--cluster=y=c:3"), GatewaySettings(cluster={"x": "a:1,b:2", "y": "c:3"})),
    (("--cluster", "x=a:1;y=c:3"), GatewaySettings(cluster={"x": "a:1", "y": "c:3"})),
    (("--http-port", "off", "--grpc-port", "0"), GatewaySettings(http_port=-1, grpc_port=0)),
    (("--drain-ms", "2s", "--control", ""), GatewaySettings(drain_ms=2_000)),
    (("--cluster", "x"), None),
    (("--cluster", "x=a:1", "--cluster", "x=b:2"), None),
    (("--http-port", "-2"), None),
    (("--kafka-port", "1"), None),
    (("--help",), None),
]


@pytest.mark.parametrize(("arguments", "expected"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_a_command_line_gives_the_same_settings_with_and_without_typer(
    arguments: Sequence[str], expected: GatewaySettings | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[GatewaySettings] = []

    def run(settings: GatewaySettings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(gateway, "run", run)
    CliRunner().invoke(app, ["gateway", *arguments])
    assert seen == ([] if expected is None else [expected])
    assert gateway.plain_settings(arguments) == expected

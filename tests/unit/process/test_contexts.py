"""Tests where clients find their brokers: in the environment, in the contexts, or at the default address."""

import asyncio
from pathlib import Path

import pytest

import millstream
from builders.sdk.scripted_broker import Scene, play
from millstream.process.contexts import FoundBootstrap, find_bootstrap

FILE = """current = "home"
[contexts.home]
bootstrap = "127.0.0.1:2"
[contexts.work]
bootstrap = "127.0.0.1:3"
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MILLSTREAM_BOOTSTRAP", "MILLSTREAM_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config.toml"
    monkeypatch.setenv("MILLSTREAM_CLIENT_CONFIG", str(path))
    return path


def test_the_environment_overrides_the_contexts_which_override_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_bootstrap().bootstrap == "127.0.0.1:9092"
    file.write_text(FILE)
    assert find_bootstrap() == FoundBootstrap("127.0.0.1:2", f"context 'home' in {file}")
    monkeypatch.setenv("MILLSTREAM_CONTEXT", "work")
    assert find_bootstrap() == FoundBootstrap("127.0.0.1:3", f"context 'work' in {file}")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "127.0.0.1:4")
    assert find_bootstrap() == FoundBootstrap("127.0.0.1:4", "the environment variable MILLSTREAM_BOOTSTRAP")


@pytest.mark.parametrize(("text", "name"), [(FILE, "wrok"), ("current = 7", None), ('current = "gone"', None)])
def test_an_unknown_context_and_an_invalid_file_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str | None
) -> None:
    file.write_text(text)
    if name is not None:
        monkeypatch.setenv("MILLSTREAM_CONTEXT", name)
    with pytest.raises(millstream.InvalidArgumentError):
        find_bootstrap()
    with pytest.raises(millstream.InvalidArgumentError):
        millstream.connect()


def test_a_client_without_an_address_uses_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(scene: Scene) -> None:
        monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "broker1:9092")
        async with millstream.connect_async(network=scene.network.host("client")) as client:
            assert str(client.admin).startswith("<AsyncAdmin of broker1:9092")

    play(body)


def test_the_error_of_an_unreachable_broker_names_the_source_of_its_address(file: Path) -> None:
    file.write_text(FILE)
    with pytest.raises(millstream.UnreachableError, match="the address is from context 'home' in") as caught:
        millstream.connect(timeout=0.1)
    assert "127.0.0.1:2" in str(caught.value)

    async def connect_async() -> None:
        await millstream.connect_async(timeout=0.1)

    with pytest.raises(millstream.UnreachableError, match="the address is from context 'home' in"):
        asyncio.run(connect_async())


def test_the_error_of_an_invalid_address_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "host:port")
    with pytest.raises(millstream.InvalidArgumentError, match="from the environment variable MILLSTREAM_BOOTSTRAP"):
        millstream.connect()

"""Tests what a type checker knows about the values of consumers and messages. Mypy checks a small program."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = """
import msgspec
import millstream

class Order(msgspec.Struct):
    number: int

def length(data: bytes) -> int:
    return len(data)

def encoded(order: Order) -> bytes:
    return b""

def blocking(client: millstream.Client) -> None:
    reveal_type(client.consumer("t"))
    reveal_type(client.consumer("t", values=bytes))
    reveal_type(client.consumer("t", values=str))
    reveal_type(client.consumer("t", values="json"))
    reveal_type(client.consumer("t", values=Order, group="g", start="beginning"))
    reveal_type(client.consumer("t", values=list[Order]))
    reveal_type(client.consumer("t", values=Order | None))
    reveal_type(client.consumer("t", values=length))
    reveal_type(client.subscription("t", values=Order))
    consumer = client.consumer("t", values=Order)
    for message in consumer:
        reveal_type(message)
        reveal_type(message.value)
    for batch in consumer.batches():
        reveal_type(batch.messages)
    reveal_type(consumer.poll())
    reveal_type(consumer.poll_batch())
    reveal_type(consumer.get("t", 0, 0))
    with client.consumer("t", values=Order) as entered:
        reveal_type(entered)

    reveal_type(client.producer())
    reveal_type(client.producer(values="json", linger=0))
    reveal_type(client.producer(values=str))
    reveal_type(client.producer(values=encoded))
    with client.producer(values=Order) as producer:
        reveal_type(producer)
        producer.put("t", Order(1))
        producer.put("t", None, key="deleted")
        producer.put("t", "text")  # type: ignore[arg-type]
        producer.put("t")  # type: ignore[call-arg]
    client.producer().put("t", Order(1))  # type: ignore[arg-type]

async def asynchronous(client: millstream.AsyncClient) -> None:
    reveal_type(client.consumer("t"))
    reveal_type(client.producer(values=Order))
    consumer = client.consumer("t", values=Order)
    async for message in consumer:
        reveal_type(message.value)
    async for batch in consumer.batches():
        reveal_type(batch.messages)
    reveal_type(await consumer.poll())
    reveal_type(await consumer.poll_batch())
    async with client.consumer("t", values=Order) as entered:
        reveal_type(entered)
"""

EXPECTED = [
    "Consumer[bytes]",
    "Consumer[bytes]",
    "Consumer[str]",
    "Consumer[Any]",
    "Consumer[Order]",
    "Consumer[list[Order]]",
    "Consumer[Any]",
    "Consumer[int]",
    "Subscription[Order]",
    "Message[Order]",
    "Order | None",
    "list[Message[Order]]",
    "list[Message[Order]]",
    "MessageBatch[Order] | None",
    "list[Message[bytes]]",
    "Consumer[Order]",
    "Producer[bytes | bytearray | memoryview[int] | str]",
    "Producer[Any]",
    "Producer[str]",
    "Producer[Order]",
    "Producer[Order]",
    "AsyncConsumer[bytes]",
    "AsyncProducer[Order]",
    "Order | None",
    "list[Message[Order]]",
    "list[Message[Order]]",
    "MessageBatch[Order] | None",
    "AsyncConsumer[Order]",
]


def revealed(program: str, folder: Path) -> list[str]:
    """Return the types that mypy reveals, without the names of modules."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)
    assert "error:" not in ended.stdout, ended.stdout
    types = re.findall(r'Revealed type is "(.*)"$', ended.stdout, flags=re.MULTILINE)
    return [shortened(each) for each in types]


def shortened(revealed_type: str) -> str:
    """Return a type without module names, and with the fallback class of a tuple instead of its fields."""
    text = re.sub(r"tuple\[.*?, fallback=([^\s]+?\[[^\]]*\])\]", r"\1", revealed_type)
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    return re.sub(r"Union\[(.*), None\]", r"\1 | None", text)


def test_values_of_consumers_and_messages_have_the_configured_type(tmp_path: Path) -> None:
    assert revealed(PROGRAM, tmp_path) == EXPECTED


def test_the_stub_of_the_message_agrees_with_the_module() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "millstream.records.message", "--ignore-missing-stub"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)
    assert ended.returncode == 0, ended.stdout + ended.stderr

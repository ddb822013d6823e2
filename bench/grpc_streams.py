"""Measures the throughput of gRPC's batched write stream: `python -m bench.grpc_streams [--quick]`.

A broker, a gateway and a writer each run as a process. The writer sends batches that were encoded before, to cost
little, over one stream, with a fixed maximum of unacknowledged batches. When a batch is acknowledged, its messages are
durable according to the broker's `flush`, and count.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import uvloop
from bench.gateway.running import gateway
from bench.peers import ROOT, Millstream
from bench.processes import usage
from bench.report import spread
from bench.section import Section

from millstream.gateway.grpc.v1 import events_pb2, messages_pb2, topics_pb2
from millstream.gateway.grpc.v1.topics_pb2_grpc import TopicServiceStub

BEGIN = "<!-- grpc:begin (written by bench/grpc_streams.py) -->"
END = "<!-- grpc:end -->"
METHOD = "/millstream_api.v1.MessageService/PutStream"
TARGET = 200_000
EVENTS = 1_000
WINDOW = 16
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Case:
    """The contents of a batch."""

    title: str
    columns: bool
    keys: bool = False
    partitions: int = 1


@dataclass(slots=True)
class Found:
    """Messages per second of each round, and microseconds of the gateway's CPU per message."""

    rates: list[float] = field(default_factory=list)
    gateway_us: list[float] = field(default_factory=list)


CASES = (
    Case("columns", columns=True),
    Case("columns with keys, 4 partitions", columns=True, keys=True, partitions=4),
    Case("events", columns=False),
    Case("events with keys, 4 partitions", columns=False, keys=True, partitions=4),
)


def main() -> int:
    arguments = _parse()
    section = Section("bench.grpc_streams", BEGIN, END)
    found = {case: Found() for case in CASES}
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        peer = Millstream(Path(directory))
        peer.start(flush_always=arguments.flush_always)
        try:
            with (
                gateway(peer.bootstrap, "grpc") as (pid, (port,)),
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                for number in range(arguments.rounds):
                    for case in CASES:
                        runner.run(_round(case, found[case], pid, port, f"bench-{number}", arguments.batches))
        finally:
            peer.end()
    flush = "flush before every acknowledgement" if arguments.flush_always else "flush = os"
    conditions = (
        f"one stream, {EVENTS:,} messages of {VALUE_BYTES} bytes a batch, at most {WINDOW} batches unacknowledged; "
        f"{arguments.rounds} rounds of {arguments.batches:,} batches; {flush}"
    )
    section.publish(conditions, table(found.items()), arguments.output)
    return 0


async def _round(case: Case, found: Found, gateway: int, port: int, name: str, batches: int) -> None:
    topic = f"{name}-{CASES.index(case)}"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = topics_pb2.CreateTopicRequest(name=topic, partitions=case.partitions)
        await TopicServiceStub(channel).CreateTopic(request)
        encoded = _batch(case, topic)
        await _write(channel, encoded, min(batches, 20))
        before, begun_s = usage(gateway), time.perf_counter()
        await _write(channel, encoded, batches)
        took_s, messages = time.perf_counter() - begun_s, batches * EVENTS
        found.rates.append(messages / took_s)
        found.gateway_us.append((usage(gateway).cpu_s - before.cpu_s) / messages * 1e6)


def _batch(case: Case, topic: str) -> bytes:
    values = [bytes([65 + number % 26]) * VALUE_BYTES for number in range(EVENTS)]
    keys = [b"key-%d" % (number % 100) for number in range(EVENTS)] if case.keys else []
    request = messages_pb2.PutStreamRequest(topic=topic)
    if case.columns:
        request.columns.CopyFrom(events_pb2.EventColumns(values=values, keys=keys))
    else:
        for number, value in enumerate(values):
            request.events.add(value=value, key=keys[number] if keys else None)
    return request.SerializeToString()


async def _write(channel: grpc.aio.Channel, encoded: bytes, batches: int) -> None:
    method: Any = channel.stream_stream(METHOD)
    stream, room = method(), asyncio.Semaphore(WINDOW)

    async def send() -> None:
        for _ in range(batches):
            await room.acquire()
            await stream.write(encoded)
        await stream.done_writing()

    sending = asyncio.create_task(send())
    told = b""
    for _ in range(batches):
        told = await stream.read()
        room.release()
    await sending
    last = messages_pb2.PutStreamResponse.FromString(told)
    assert len(last.offsets) == EVENTS
    assert not last.failures


def table(found: Iterable[tuple[Case, Found]]) -> list[str]:
    lines = ["| batches as | messages/s | target | | gateway's CPU, µs a message |", "|---|---|---|---|---|"]
    for case, each in found:
        verdict = "met" if statistics.median(each.rates) >= TARGET else "**missed**"
        cost = statistics.median(each.gateway_us)
        lines.append(f"| {case.title} | {spread(each.rates)} | ≥ {TARGET:,} | {verdict} | {cost:.2f} |")
    return lines


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.grpc_streams", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round; results are only printed")
    parser.add_argument("--tiny", action="store_true", help="minimal work, to test the bench itself")
    parser.add_argument("--flush-always", action="store_true", help="flush before every acknowledgement")
    parser.add_argument("--output", help="page to rewrite (default: bench/RESULTS.md; none with --quick or --tiny)")
    arguments = parser.parse_args()
    arguments.rounds = 1 if arguments.tiny or arguments.quick else 5
    arguments.batches = 3 if arguments.tiny else 1_000 if arguments.quick else 3_000
    if arguments.output is None and not (arguments.quick or arguments.tiny):
        arguments.output = str(ROOT / "bench" / "RESULTS.md")
    return arguments


if __name__ == "__main__":
    sys.exit(main())

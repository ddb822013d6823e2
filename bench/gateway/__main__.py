"""How fast the web API is, on a broker and a gateway of its own: `python -m bench.gateway`, or `--tiny` to see it run.

Events of 100 bytes are posted 1,000 at a time and one by one; a long poll is woken while others wait on other topics.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.gateway.load import answered, events_body, get, load, post

from penstock.testing.real_broker import RealBroker

MANY = 1_000
SIZE_BYTES = 100
OTHER_TOPICS = 20


class Scale(NamedTuple):
    """How much of each is done."""

    many: int
    single: int
    waiting: int
    wakes: int


FULL = Scale(2_000, 20_000, 1_000, 500)
TINY = Scale(5, 20, 5, 5)


async def writes(port: int, scale: Scale) -> list[str]:
    """Events a second, by how they come and over how many connections."""
    many = post("/events", events_body("many", MANY, SIZE_BYTES))
    single = post("/events", json.dumps({"topic": "single", "value": "x" * SIZE_BYTES}).encode())
    rows = []
    for name, request, requests, connections, each in (
        ("1,000 a request", many, scale.many, 1, MANY),
        ("1,000 a request", many, scale.many, 4, MANY),
        ("one a request", single, scale.single, 8, 1),
        ("one a request", single, scale.single, 64, 1),
    ):
        await load(port, request, max(connections, requests // 10), connections)
        tally, taken_s = await load(port, request, requests, connections)
        assert tally.refused == 0, "the gateway refused some"
        rows.append(f"{name}, {connections} connections: {tally.answered * each / taken_s:,.0f} events/s")
    return rows


async def wakes(port: int, scale: Scale) -> str:
    """How long after the answer to a write the poll that waits for it is answered, while others wait elsewhere."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(OTHER_TOPICS):
        body = json.dumps({"topic": f"other-{number}", "value": "x"}).encode()
        await answered(reader, writer, post("/events", body))
    wake = post("/events", b'{"topic": "wake", "value": "x"}')
    await answered(reader, writer, wake)
    others = []
    for number in range(scale.waiting):
        other = (await asyncio.open_connection("127.0.0.1", port))[1]
        other.write(get(f"/events?topic=other-{number % OTHER_TOPICS}&offset=latest&wait=60"))
        others.append(other)
    poll = await asyncio.open_connection("127.0.0.1", port)
    place = json.loads((await answered(*poll, get("/events?topic=wake&offset=latest&wait=0")))[1])["next"]
    latencies_s = []
    for _ in range(scale.wakes):
        waiting = asyncio.ensure_future(answered(*poll, get(f"/events?topic=wake&offset={place}&wait=30")))
        await asyncio.sleep(0.01)
        written_s, _ = await answered(reader, writer, wake)
        woken_s, body = await waiting
        latencies_s.append(woken_s - written_s)
        place = json.loads(body)["next"]
    for each in (writer, poll[1], *others):
        each.close()
    latencies_s.sort()
    middle, late = latencies_s[len(latencies_s) // 2], latencies_s[int(len(latencies_s) * 0.99)]
    return f"woken while {scale.waiting:,} others wait: {middle * 1000:.2f} ms, p99 {late * 1000:.2f} ms"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="just enough to see that it works")
    scale = TINY if parser.parse_args(arguments).tiny else FULL
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as directory,
        RealBroker(Path(directory) / "data", gateway=True) as broker,
    ):
        begun_s = time.perf_counter()
        for row in asyncio.run(writes(broker.http_port, scale)):
            print(row)
        print(asyncio.run(wakes(broker.http_port, scale)))
        print(f"measured in {time.perf_counter() - begun_s:.0f} s")


if __name__ == "__main__":
    main()

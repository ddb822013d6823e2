"""Implements `millstream bench produce | consume | latency`, which measures a broker from this machine."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.commands.completion import complete_topic
from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import (
    ACKS,
    COMPRESSIONS,
    DEFAULT_BOOTSTRAP,
    PARTITIONS_MAX,
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    Timeout,
    check_choice,
)
from millstream.cli.output import print_json, print_line, print_table
from millstream.model.limits import MESSAGE_BYTES_MAX
from millstream.model.units import quoted, read_size_bytes

if TYPE_CHECKING:
    from millstream.cli.messages.bench_loads import BenchLoad, Measurement
    from millstream.cli.session import CommandSession
    from millstream.sdk.aio.producer import AsyncProducer

app = typer.Typer(
    help="Measure a broker with a simple load. The results include the time that the Python client takes.",
    no_args_is_help=True,
)

PRODUCERS_MAX = 256
_BATCH_BYTES = 64 * 1024
_MESSAGE_BYTES_MAX = MESSAGE_BYTES_MAX // 2
"""Largest value that fits into one batch of a topic with default settings."""

Count = Annotated[int, typer.Option("--count", "-c", min=1, help="Total number of messages.")]
Size = Annotated[str, typer.Option("--size", metavar="BYTES", help="Size of each value, such as 100 or 1KiB.")]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, max=1_000_000, help="Messages per call (default: about 64 KiB)."),
]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, max=PARTITIONS_MAX, help="Partitions of the temporary topic.")
]
Producers = Annotated[
    int, typer.Option("--producers", min=1, max=PRODUCERS_MAX, help="Number of concurrent producers.")
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Existing topic to use (default: a temporary topic, deleted at the end).",
        autocompletion=complete_topic,
    ),
]


@app.command()
def produce(
    count: Count = 100_000,
    size: Size = "100",
    batch: Batch = None,
    partitions: Partitions = 1,
    producers: Producers = 1,
    compression: Compression = "none",
    acks: Acks = "all",
    topic: Topic = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Measure the throughput of writes."""
    with failures_explained(as_json):
        requested = _requested_load(
            count, size, batch, producers=producers, compression=compression, acks=acks, timeout_s=timeout
        )
        from millstream.cli.messages import bench_loads

        with _prepared(bootstrap, topic, partitions, requested) as bench:
            load = bench.load
            with bench.producers() as writers:
                measured = bench.run("writing", as_json, lambda advance: bench_loads.produce(writers, load, advance))
        _print_measurement("produce", load, measured, as_json=as_json)


@app.command()
def consume(
    count: Count = 100_000,
    size: Size = "100",
    batch: Batch = None,
    partitions: Partitions = 1,
    compression: Compression = "none",
    topic: Topic = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Measure the throughput of reads. A temporary topic is filled first; a named topic is read as it is."""
    with failures_explained(as_json):
        requested = _requested_load(
            count, size, batch, producers=1, compression=compression, acks="all", timeout_s=timeout
        )
        from millstream.cli.messages import bench_loads

        with _prepared(bootstrap, topic, partitions, requested) as bench:
            load, client = bench.load, bench.session.client
            if topic is None:
                with bench.producers() as writers:
                    bench.run("filling", as_json, lambda advance: bench_loads.produce(writers, load, advance))
            measured = bench.run("reading", as_json, lambda advance: bench_loads.consume(client, load, advance))
        _print_measurement("consume", load, measured, as_json=as_json)


@app.command()
def latency(
    count: Count = 1_000,
    size: Size = "100",
    compression: Compression = "none",
    acks: Acks = "all",
    topic: Topic = None,
    timeout: Timeout = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Measure the latency of single messages: from the write to the acknowledgement, and to a waiting reader."""
    with failures_explained(as_json):
        requested = _requested_load(count, size, 1, producers=1, compression=compression, acks=acks, timeout_s=timeout)
        from millstream.cli.messages import bench_loads

        with _prepared(bootstrap, topic, 1, requested) as bench:
            load, reader = bench.load, bench.session.client
            with bench.producers() as (writer,):
                measured = bench.run("measuring", as_json, lambda add: bench_loads.latency(writer, reader, load, add))
        _print_measurement("latency", load, measured, as_json=as_json)


def _requested_load(
    count: int, size: str, batch: int | None, *, producers: int, compression: str, acks: str, timeout_s: float
) -> "BenchLoad":
    check_choice("--compression", compression, COMPRESSIONS)
    check_choice("--acks", acks, ACKS)
    try:
        size_bytes = read_size_bytes(size)
    except ValueError as error:
        raise usage_error(f"--size: {quoted(size)} is {error}") from None
    if not 0 <= size_bytes <= _MESSAGE_BYTES_MAX:
        raise usage_error(f"--size {size}: expected 0 to {_MESSAGE_BYTES_MAX} bytes")
    from millstream.cli.messages.bench_loads import BenchLoad

    batch = batch or max(1, _BATCH_BYTES // max(1, size_bytes))
    return BenchLoad("", count, size_bytes, batch, producers, ACKS[acks], compression, timeout_s)


class _Bench:
    """Opens the producers of a load, and runs the load with a progress bar."""

    def __init__(self, session: "CommandSession", load: "BenchLoad") -> None:
        self.session = session
        self.load = load

    @contextmanager
    def producers(self) -> "Iterator[list[AsyncProducer]]":
        """Opens the number of producers that the load asks for, each with its own connections."""
        from millstream.cli.session import producing
        from millstream.sdk.producing.options import ProducerSettings

        load = self.load
        options = ProducerSettings(compression=load.compression, acks=load.acks, timeout_s=load.timeout_s)
        with ExitStack() as stack:
            yield [stack.enter_context(producing(self.session, options)) for _ in range(load.producers)]

    def run(
        self, what: str, as_json: bool, work: "Callable[[Callable[[int], None]], Coroutine[Any, Any, Measurement]]"
    ) -> "Measurement":
        from millstream.cli.progress import ProgressBar

        with ProgressBar(what, self.load.messages, wanted=not as_json) as bar:
            return self.session.run(work(bar.advance))


@contextmanager
def _prepared(bootstrap: str, topic: str | None, partitions: int, load: "BenchLoad") -> Iterator[_Bench]:
    """Opens a session with the named topic, or with a temporary one that is deleted at the end, also after Ctrl-C."""
    from millstream.cli.session import connected
    from millstream.cli.suggestions import topic_expected
    from millstream.seams.entropy import SystemEntropy

    with connected(bootstrap, load.timeout_s) as session:
        client = session.client
        if topic is not None:
            with topic_expected(session, topic):
                session.run(client.describe_topic(topic, timeout_s=load.timeout_s))
                yield _Bench(session, load._replace(topic=topic))
            return
        name = f"millstream-bench-{SystemEntropy().token(6).hex()}"
        session.run(client.create_topic(name, partitions=partitions, timeout_s=load.timeout_s))
        try:
            yield _Bench(session, load._replace(topic=name))
        finally:
            session.run(client.delete_topic(name, timeout_s=load.timeout_s))


def _print_measurement(what: str, load: "BenchLoad", measured: "Measurement", *, as_json: bool) -> None:
    document = measured.document()
    if as_json:
        print_json({"bench": what, "load": load._asdict(), **document})
        return
    size_bytes = round(measured.size_bytes / max(1, measured.messages))  # An existing topic has other sizes.
    print_line(
        f"{document['messages']} messages of {size_bytes} B in {document['seconds']:.3f} s: "
        f"{document['messages_per_s']:.0f} messages/s, {document['mb_per_s']:.2f} MB/s."
    )
    columns = ["ms", *next(iter(document["latency_ms"].values()))]
    rows = [(name, *(f"{value:.2f}" for value in row.values())) for name, row in document["latency_ms"].items()]
    print_line()
    print_table(columns, rows, numbers=columns[1:])

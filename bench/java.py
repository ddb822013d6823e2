"""Runs Kafka's own load tools from its jars: builds their command lines and parses their output."""

from collections.abc import Mapping, Sequence

from bench.peers import WORK

LIBS = WORK / "kafka" / "libs"
HEAP = "512m"


def tool(name: str, brokers: str, topic: str, records: int, *arguments: str) -> list[str]:
    """Returns the command line of one of `org.apache.kafka.tools`."""
    named = ["--bootstrap-server", brokers, "--topic", topic, "--num-records", str(records)]
    return ["java", f"-Xmx{HEAP}", "-cp", f"{LIBS}/*", f"org.apache.kafka.tools.{name}", *named, *arguments]


def produce(brokers: str, topic: str, records: int, size: int) -> list[str]:
    settings = ["acks=all", "linger.ms=5", "batch.size=1000000"]
    arguments = ["--record-size", str(size), "--throughput", "-1", "--command-property", *settings]
    return tool("ProducerPerformance", brokers, topic, records, *arguments)


def consume(brokers: str, topic: str, records: int) -> list[str]:
    return tool("ConsumerPerformance", brokers, topic, records)


def end_to_end(brokers: str, topic: str, records: int, size: int) -> list[str]:
    return tool("EndToEndLatency", brokers, topic, records, "--producer-acks", "all", "--record-size", str(size))


def produced(said: str, size: int) -> Mapping[str, float]:
    """Parses `1000 records sent, 500.0 records/sec (...), ...`, the last such line."""
    words = _last_line(said, "records sent").split()
    messages, rate = int(words[0]), float(words[3])
    return {"messages": messages, "bytes": messages * size, "seconds": messages / rate}


def consumed(said: str) -> Mapping[str, float]:
    """Parses a table of one row: the time in which records arrived, without the time in which the group formed."""
    names, values = ([cell.strip() for cell in line.split(",")] for line in said.strip().splitlines()[-2:])
    row = dict(zip(names, values, strict=True))
    return {
        "messages": int(row["data.consumed.in.nMsg"]),
        "bytes": float(row["data.consumed.in.MB"]) * 1024 * 1024,
        "seconds": float(row["fetch.time.ms"]) / 1000,
    }


def echoed(said: str, messages: int, size: int) -> Mapping[str, float]:
    """Parses `Avg latency: 0.9 ms`. The percentiles beside it are whole milliseconds, too coarse to compare."""
    return {
        "messages": messages,
        "bytes": messages * size,
        "mean_us": float(_last_line(said, "Avg latency").split()[2]) * 1000,
    }


def _last_line(said: str, wanted: str) -> str:
    lines: Sequence[str] = [line for line in said.splitlines() if wanted in line]
    if not lines:
        raise RuntimeError(f"no '{wanted}' in the output of the tool:\n{said}")
    return lines[-1]

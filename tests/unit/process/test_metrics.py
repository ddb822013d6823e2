"""Tests that Prometheus' own parser reads the rendered metrics."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millstream.process import metrics
from millstream.process.metrics import NO_SAMPLE, Histogram, Metric, counter, gauge, histogram, render, render_in_slices


def test_prometheus_parses_the_rendered_metrics() -> None:
    text = render(
        [
            gauge("millstream_partitions", "Partitions on this broker.", 3),
            counter("millstream_appended_bytes_total", "Bytes stored.", 2**53 + 1),
            Metric("millstream_cpu_seconds", "gauge", "CPU.", (({"kind": "user"}, 0.25), ({"kind": "system"}, 1e-9))),
        ]
    )
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert families["millstream_partitions"].samples[0].value == 3
    assert families["millstream_partitions"].documentation == "Partitions on this broker."
    assert families["millstream_appended_bytes"].type == "counter"
    assert [(sample.labels, sample.value) for sample in families["millstream_cpu_seconds"].samples] == [
        ({"kind": "user"}, 0.25),
        ({"kind": "system"}, 1e-9),
    ]


def test_integers_keep_every_digit() -> None:
    assert b"x_total 9007199254740993\n" in render([counter("x_total", "X.", 2**53 + 1)])


def test_special_characters_in_labels_are_escaped() -> None:
    odd = 'quote " backslash \\ newline \n end'
    text = render([Metric("x", "gauge", "Help with \\ and \n.", (({"topic": odd}, 1),))])
    (family,) = text_string_to_metric_families(text.decode())
    assert family.samples[0].labels == {"topic": odd}


def test_a_histogram_counts_each_value_in_every_bucket_at_or_above_it() -> None:
    durations = Histogram((0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        durations.observe(value)
    (family,) = text_string_to_metric_families(render([histogram("x_seconds", "X.", durations)]).decode())
    assert family.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("x_seconds_bucket", "0.1", 2),
        ("x_seconds_bucket", "1", 3),
        ("x_seconds_bucket", "+Inf", 4),
        ("x_seconds_sum", None, pytest.approx(7.65)),
        ("x_seconds_count", None, 4),
    ]
    assert durations.count == 4


def test_histogram_buckets_keep_the_labels_of_their_sample() -> None:
    text = render([Metric("x_seconds", "histogram", "X.", (({"api": "Fetch"}, Histogram((1,))),))])
    assert b'x_seconds_bucket{api="Fetch",le="+Inf"} 0\n' in text
    assert b'x_seconds_count{api="Fetch"} 0\n' in text


def test_work_without_a_sample_renders_nothing_and_counts_as_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SLICE_LINES", 10)
    samples = [({"partition": "1"}, 1), *[NO_SAMPLE] * 50, ({"partition": "2"}, 2)]
    turns = 0

    async def story() -> bytes:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        text = await render_in_slices([Metric("x", "gauge", "X.", samples)])
        counting.cancel()
        return text

    assert asyncio.run(story()).decode().splitlines()[2:] == ['x{partition="1"} 1', 'x{partition="2"} 2']
    assert turns >= 5


def test_other_work_runs_between_the_slices_of_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SLICE_LINES", 10)
    progress: list[int] = []

    def samples() -> Iterator[tuple[dict[str, str], int]]:
        for number in range(100):
            progress.append(number)
            yield {"partition": str(number)}, number

    async def story() -> bytes:
        async def watch() -> None:
            while len(progress) < 100:
                seen.append(len(progress))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        text = await render_in_slices([Metric("x", "gauge", "X.", samples())])
        await watching
        return text

    seen: list[int] = []
    assert asyncio.run(story()) == render([Metric("x", "gauge", "X.", samples())])
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert len(steps) >= 9
    assert max(steps) <= 10

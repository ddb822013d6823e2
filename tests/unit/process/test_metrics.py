"""Tests that Prometheus' own parser reads the rendered metrics."""

from prometheus_client.parser import text_string_to_metric_families

from millstream.process.metrics import Metric, counter, gauge, render


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

"""Tests the table of the codec bench: its ratios and its verdicts."""

from bench.codec import Found, table
from bench.codecs import ARROW, COMPILED, LIBRARY, RIVAL, UNCOMPILED, Shape


def rates(**changed: list[float]) -> dict[str, list[float]]:
    return {RIVAL: [1.0, 2.0], UNCOMPILED: [0.1, 0.1], COMPILED: [2.0, 2.0], ARROW: [6.0, 10.0], **changed}


def test_ratios_compare_contenders_of_the_same_round() -> None:
    (row,) = table([Found("decode", Shape(10, 100), rates())])[2:]
    assert row == (
        "| decode 10 × 100 B | 1.5 | 0.1 | 2 | 8 |  | 1.5 (1 to 2) | 5.5 (5 to 6) | compiled ≥ 1: met; Arrow ≥ 5: met |"
    )


def test_each_missed_target_is_reported() -> None:
    (row,) = table([Found("decode", Shape(10, 100), rates(compiled=[0.9, 1.0], Arrow=[4.0, 4.0]))])[2:]
    assert row.endswith("| compiled ≥ 1: **missed**; Arrow ≥ 5: **missed** |")


def test_arrow_has_no_target_when_decompression_dominates() -> None:
    shape = Shape(1000, 100, has_keys=False, compression="gzip")
    (row,) = table([Found("decode", shape, rates(**{LIBRARY: [3.0, 3.0]}))])[2:]
    assert row.startswith("| decode 1,000 × 100 B, no keys, gzip | 1.5 | 0.1 | 2 | 8 | 3 | ")
    assert row.endswith("| compiled ≥ 1: met |")

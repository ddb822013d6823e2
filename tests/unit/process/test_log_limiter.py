"""Tests the limits of log lines per key and over all keys."""

from millstream.process.log_limiter import LogLimiter


def test_a_repeated_key_is_admitted_once_per_period_with_the_suppressed_count() -> None:
    limiter = LogLimiter(60)
    assert [limiter.admit("disk", now_s) for now_s in (0, 1, 59)] == [0, None, None]
    assert limiter.admit("network", 59) == 0
    assert [limiter.admit("disk", now_s) for now_s in (60, 61, 120)] == [2, None, 1]


def test_the_lines_of_many_keys_are_limited_and_the_excess_is_reported_once() -> None:
    limiter = LogLimiter(60, keys_max=10, lines_max=5)
    assert sum(limiter.admit(key, 1) is not None for key in range(100)) == 5
    assert limiter.take_overflow() == 0, "the period is not over"
    assert limiter.admit("another", 61) == 0
    assert [limiter.take_overflow(), limiter.take_overflow()] == [95, 0]


def test_the_key_that_was_logged_longest_ago_is_forgotten_first() -> None:
    limiter = LogLimiter(60, keys_max=2)
    for now_s, key in enumerate("abc"):
        assert limiter.admit(key, now_s) == 0
    assert limiter.admit("c", 5) is None
    assert limiter.admit("a", 6) == 0

"""Work beside a caller that comes back for it."""

import gc
import threading

import pytest

from penstock.model.workers import Beside


def test_results_and_failures_are_given_to_whoever_comes_for_them_as_often_as_it_does() -> None:
    beside = Beside("beside")
    good, bad = beside.begin(lambda: 7), beside.begin(lambda: 1 // 0)
    for _ in range(2):
        assert good.wait() == 7
        with pytest.raises(ZeroDivisionError):
            bad.wait()
    assert good.is_done


def test_the_thread_ends_with_its_maker() -> None:
    beside = Beside("beside of one test")
    (thread,) = (each for each in threading.enumerate() if each.name == "beside of one test")
    assert beside.begin(threading.current_thread).wait() is thread
    del beside
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()

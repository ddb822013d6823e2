"""Tests the thread that runs jobs for one owner."""

import gc
import threading

import pytest

from millstream.seams.workers import CompanionThread


def test_a_job_returns_its_result_or_error_on_every_call() -> None:
    beside = CompanionThread("beside")
    good, bad = beside.begin(lambda: 7), beside.begin(lambda: 1 // 0)
    for _ in range(2):
        assert good.result() == 7
        with pytest.raises(ZeroDivisionError):
            bad.result()


def test_the_error_of_a_job_is_raised_by_result_and_not_by_join() -> None:
    job = CompanionThread("beside").begin(lambda: 1 // 0)
    job.join()
    with pytest.raises(ZeroDivisionError):
        job.result()


def test_no_thread_remains_when_its_creation_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        CompanionThread("beside")
    gc.collect()
    begun[0].join(10)
    assert not begun[0].is_alive()


def test_the_thread_ends_when_its_owner_is_collected() -> None:
    beside = CompanionThread("beside of one test")
    (thread,) = (each for each in threading.enumerate() if each.name == "beside of one test")
    assert beside.begin(threading.current_thread).result() is thread
    del beside
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()

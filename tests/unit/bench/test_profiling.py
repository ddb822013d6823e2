"""Tests the summary of the stacks that a profiler sampled."""

from bench.profiling import summary

WORKER = "ThreadWorkers._work (/usr/lib/python3.11/site-packages/millstream/seams/workers.py)"
FLUSH = "LocalFile.flush (/here/src/millstream/seams/local_disk.py)"


def test_a_profile_ranks_functions_by_own_time_and_by_total_time() -> None:
    lines = summary(
        [
            "main (a.py);handle (a.py);append (b.py) 6",
            "main (a.py);handle (a.py) 3",
            "main (a.py) 1",
        ]
    )
    assert lines == [
        "10 samples at 500 a second of threads at work",
        "",
        "By its own time",
        "",
        "   self  within  function",
        "  60.0%   60.0%  append (b.py)",
        "  30.0%   90.0%  handle (a.py)",
        "  10.0%  100.0%  main (a.py)",
        "",
        "By all that happens within",
        "",
        "   self  within  function",
        "  10.0%  100.0%  main (a.py)",
        "  30.0%   90.0%  handle (a.py)",
        "  60.0%   60.0%  append (b.py)",
    ]


def test_a_profile_ignores_threads_that_wait_for_events_or_work() -> None:
    lines = summary(
        [
            "main (a.py);epoll_pwait (libc.so.6) 50",
            f"{WORKER};0x7f0000000000 (libc.so.6) 50",
            f"{WORKER};{FLUSH};fdatasync (libc.so.6) 4",
        ]
    )
    assert lines[0].startswith("4 samples")
    assert lines[5] == " 100.0%  100.0%  fdatasync (libc.so.6)"


def test_a_profile_shows_file_paths_relative_to_their_package_root() -> None:
    assert summary([f"{FLUSH} 1"])[-1].endswith("LocalFile.flush (millstream/seams/local_disk.py)")


def test_a_recursive_function_counts_once_per_sample() -> None:
    assert summary(["walk (a.py);walk (a.py) 2"])[-1] == " 100.0%  100.0%  walk (a.py)"

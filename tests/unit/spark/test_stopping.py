"""Tests that a stop signal reaches a pipeline that waits for a pipe."""

import io
import os
import signal
import threading
from contextlib import closing

import pytest

from millstream.spark.pipelines.stopping import InterruptiblePipe, Stop

ROUNDS = 500


def test_a_signal_just_before_a_blocking_pipe_read_interrupts_it() -> None:
    """Nothing is ever written to the pipe: a missed signal would block forever."""
    reader = threading.get_ident()
    is_near = threading.Lock()

    def read(pipe: io.BufferedIOBase) -> None:
        is_near.release()  # The other thread runs when this one releases the interpreter lock, just before it waits.
        pipe.readline()

    def interrupt() -> None:
        with is_near:
            signal.pthread_kill(reader, signal.SIGINT)

    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w"):
        for _ in range(ROUNDS):
            is_near.acquire()
            interrupting = threading.Thread(target=interrupt)
            interrupting.start()
            pipe = io.BufferedReader(InterruptiblePipe(reading))
            with closing(pipe), Stop().by_signals(), pytest.raises(KeyboardInterrupt):
                read(pipe)
            interrupting.join()

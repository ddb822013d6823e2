"""What ends a pipeline reaches it, whatever it is doing in that moment."""

import io
import os
import signal
import threading
from contextlib import closing

import pytest

from millstream.spark.pipelines.stopping import InterruptiblePipe, Stop

ROUNDS = 500


def test_a_signal_is_heard_also_in_the_moment_in_which_a_pipe_begins_to_be_waited_for() -> None:
    """Nothing is ever written: who does not hear the signal waits for ever."""
    reader = threading.get_ident()
    is_near = threading.Lock()

    def read(pipe: io.BufferedIOBase) -> None:
        is_near.release()  # The other thread runs when this one lets go of the interpreter, just before it waits.
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

"""Configures the length of the fault tests: `make faults ROUNDS=n` runs n rounds each, FAULT_SEED sets the seed."""

import os
import time

from faults.record import SharedHistory

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("FAULT_SEED", "0"))


def let_it_work(history: SharedHistory, messages: int) -> None:
    """Wait until `messages` more are acknowledged, so that every fault interrupts requests in flight."""
    wanted = history.acknowledged() + messages
    end_s = time.monotonic() + 90
    while history.acknowledged() < wanted:
        assert time.monotonic() < end_s, "the producers make no progress"
        time.sleep(0.01)

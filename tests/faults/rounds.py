"""How long the fault tests go on: `make faults ROUNDS=n` runs n rounds of each; FAULT_SEED chooses other moments."""

import os
import time

from faults.record import SharedHistory

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("FAULT_SEED", "0"))


def let_it_work(history: SharedHistory, messages: int) -> None:
    """Come back when so many more messages are acknowledged, so that every fault falls into work that is under way."""
    wanted = history.acknowledged() + messages
    end_s = time.monotonic() + 90
    while history.acknowledged() < wanted:
        assert time.monotonic() < end_s, "the producers do not get on"
        time.sleep(0.01)

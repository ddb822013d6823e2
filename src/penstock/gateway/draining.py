"""Whether the gateway is on its way out."""

import asyncio


class Draining:
    """Set once. Whoever waits long for something (a poll, a stream) also waits for `begun`, and then ends early."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    @property
    def is_draining(self) -> bool:
        return self.begun.is_set()

    def begin(self) -> None:
        self.begun.set()

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from bench.peers import Peer
from bench.rounds import Interrupts, Rounds
from bench.workloads import TINY


class FailingPeer(Peer):
    """A broker whose start raises OSError, after a signal if `interrupted`: as an interrupted `shutil.rmtree` does."""

    name = "failing"
    flush_settings: Mapping[str, str] = {}

    def __init__(self, directory: Path, *, interrupted: bool) -> None:
        super().__init__(directory)
        self._interrupted = interrupted

    def prepare(self) -> None:
        try:
            if self._interrupted:
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise OSError("Bad file descriptor")

    def command(self, *, flush_always: bool) -> Sequence[str]:
        return []

    def version(self) -> str:
        return "1"


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    watching = Interrupts()
    watching.watch()
    yield watching
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("interrupted", "raised"), [(True, KeyboardInterrupt), (False, OSError)])
def test_rounds_raise_keyboard_interrupt_when_clean_up_code_replaced_it(
    interrupted: bool, raised: type[BaseException], interrupts: Interrupts, tmp_path: Path
) -> None:
    peer = FailingPeer(tmp_path / "peer", interrupted=interrupted)
    rounds = Rounds([peer], 1, TINY, tmp_path, interrupts)
    with pytest.raises(raised):
        rounds.run([], starts=False, memory=True)

"""Tracks the brokers that cannot be reached, logs outages that last, and reports them in `health()`.

Every producer, consumer, subscription and iterator client has connections of its own, and one `OutageWatch` for them.
An outage begins with the first failed attempt to connect to a broker, or with a request that the broker does not
answer. It ends when all brokers that are still needed have been reached. An attempt that gets no answer counts as
failing from its beginning.

======= =================================== ====================================================================
level   event                               logged
======= =================================== ====================================================================
WARNING brokers unreachable                 after 5 s, and then once a minute while connecting is still tried
INFO    brokers reachable again             when the last of them is reached, after a warning
INFO    brokers unreachable, not retried    when connecting is not tried any more, after a warning
======= =================================== ====================================================================
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millstream.model.errors import MillstreamError
from millstream.process.log_event import LogEvent
from millstream.sdk.connection.address import Address

WARN_AFTER_S = 5.0
WARN_INTERVAL_S = 60.0
RETRY_MAX_S = 3.0
"""An address that was not tried again for this long is not needed any more. Every retry comes sooner."""

_log = logging.getLogger("millstream.sdk.cluster")


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """A snapshot of the connections of a producer, a subscription or a client of iterators."""

    is_reachable: bool
    """False while a broker that is needed cannot be reached."""
    since_s: float
    """Duration of this state in seconds."""
    reason: str = ""
    """The last error of connecting, or the names of topics that do not exist any more; empty if there is none."""
    held_bytes: int = 0
    """Bytes that a producer holds and brokers have not acknowledged, or that were received and not delivered yet."""

    def with_missing(self, topics: Collection[str]) -> "ConnectionHealth":
        """Name these missing topics as the reason, unless brokers are unreachable."""
        if not topics or not self.is_reachable:
            return self
        return replace(self, reason=f"these topics do not exist any more: {', '.join(topics)}")

    def __str__(self) -> str:
        state = "reachable" if self.is_reachable else "unreachable"
        return f"brokers {state}, for {self.since_s:.1f} s{f': {self.reason}' if self.reason else ''}"


@dataclass(slots=True)
class _Trial:
    """The attempts to connect to one address, or the requests that it does not answer, since it was last reached."""

    since_s: float
    tried_s: float
    running: int = 0
    error: MillstreamError | None = None


class OutageWatch:
    """Tracks the outages of one set of connections. `owner` names what they belong to in log lines."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._trials: dict[Address, _Trial] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._warned_s: float | None = None
        self._begun_s = 0.0
        self._reachable_since_s: float | None = None

    def close(self) -> None:
        """Forget all attempts; nothing is logged any more."""
        self._trials.clear()
        self._stop()

    @contextmanager
    def attempt(self, address: Address) -> Iterator[None]:
        """Track one attempt to connect to this address; it fails if the block raises."""
        now_s = asyncio.get_running_loop().time()
        trial = self._trials.setdefault(address, _Trial(now_s, now_s))
        trial.running += 1
        if self._timer is None:
            self._begun_s = trial.since_s
            self._check_at(trial.since_s + WARN_AFTER_S)
        try:
            yield
        except MillstreamError as error:
            trial.error = error
            raise
        finally:
            trial.running -= 1
            trial.tried_s = asyncio.get_running_loop().time()

    def silent(self, address: Address, since_s: float, error: MillstreamError) -> None:
        """Record that a request to this address has no answer since then; its connection repeats the call meanwhile."""
        now_s = asyncio.get_running_loop().time()
        trial = self._trials.setdefault(address, _Trial(since_s, now_s))
        trial.tried_s, trial.error = now_s, error
        if self._timer is None:
            self._begun_s = since_s
            self._check()

    def reached(self, address: Address, needed: Collection[Address]) -> None:
        """Record that this address was reached, and stop tracking addresses that belong to no broker in `needed`."""
        for each in [each for each in self._trials if each == address or each not in needed]:
            self._trials.pop(each)
        if not self._trials:
            self._end("brokers reachable again")

    def health(self, held_bytes: int = 0) -> ConnectionHealth:
        """Return whether the needed brokers are reachable, since when, and the reason if not."""
        now_s = asyncio.get_running_loop().time()
        failing = self._failing(now_s)
        if not failing:
            since_s = 0.0 if self._reachable_since_s is None else now_s - self._reachable_since_s
            return ConnectionHealth(is_reachable=True, since_s=since_s, held_bytes=held_bytes)
        since_s = now_s - min(trial.since_s for trial in failing.values())
        return ConnectionHealth(is_reachable=False, since_s=since_s, reason=_reason(failing), held_bytes=held_bytes)

    def _failing(self, now_s: float) -> dict[Address, _Trial]:
        return {
            address: trial
            for address, trial in self._trials.items()
            if trial.error is not None or (trial.running and now_s - trial.since_s >= WARN_AFTER_S)
        }

    def _check_at(self, time_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(time_s, self._check)

    def _check(self) -> None:
        """Log the outage if a line is due, forget addresses that are not needed, and check again later."""
        now_s = asyncio.get_running_loop().time()
        for address, trial in list(self._trials.items()):
            if not trial.running and now_s - trial.tried_s >= RETRY_MAX_S:
                del self._trials[address]
        failing = self._failing(now_s)
        if not self._trials:
            self._end("brokers unreachable, not retried")
            return
        if failing and (self._warned_s is None or now_s - self._warned_s >= WARN_INTERVAL_S):
            self._warned_s = now_s
            _log.warning(
                LogEvent(
                    "brokers unreachable",
                    owner=self._owner,
                    addresses=",".join(map(str, failing)),
                    for_s=round(now_s - self._begun_s),
                    error=_reason(failing),
                )
            )
        self._check_at(now_s + WARN_AFTER_S)

    def _end(self, event: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._warned_s is not None:
            _log.info(LogEvent(event, owner=self._owner, for_s=round(now_s - self._begun_s)))
        if self._timer is not None or self._reachable_since_s is None:
            self._reachable_since_s = now_s
        self._stop()

    def _stop(self) -> None:
        timer, self._timer, self._warned_s = self._timer, None, None
        if timer is not None:
            timer.cancel()


def _reason(failing: dict[Address, _Trial]) -> str:
    """Return the reason of the address that has failed for the longest time."""
    address, trial = min(failing.items(), key=lambda item: item[1].since_s)
    return f"{address} has not answered yet" if trial.error is None else trial.error.detail

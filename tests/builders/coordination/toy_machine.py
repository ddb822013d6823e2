"""Implements a small state machine for `coordination`: a key-value map with expiry times and waiting callers."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from millstream.coordination.effects import Effects, LogRecord, Now, Token
from millstream.coordination.timers import Timers
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import Offset

LOADED_AT_ONCE = 10
UNREADABLE = b"\xff"


class Put(Struct, frozen=True):
    """Sets a key, and optionally a second one in the same step; `ttl_ms` is wall clock time, -1 means no expiry."""

    key: str
    value: str
    ttl_ms: int = -1
    second_key: str = ""


class Get(Struct, frozen=True):
    """Reads a key; with `at_once`, also a value that is not durable yet."""

    key: str
    at_once: bool = False


class Wait(Struct, frozen=True):
    """Waits until the key is set next."""

    key: str


class Delete(Struct, frozen=True):
    """Removes a key, without an answer."""

    key: str


class Snapshot(Struct, frozen=True):
    """Writes the state to the log again, in `steps` steps; the answer is the number of keys. The next Snapshot command
    takes the next step. The last step trims the log below the first one."""

    key: str = ""
    steps: int = 1


class Fail(Struct, frozen=True):
    """Makes the machine raise an exception."""

    key: str = ""


ToyCommand = Put | Get | Wait | Delete | Snapshot | Fail


class ToyAnswer(Struct, frozen=True):
    error: ErrorCode = ErrorCode.NONE
    value: str | None = None


ToyEffects = Effects[ToyAnswer, str]


class ToyMachine:
    """The machine. Every put and every expiry also emits a notice, `key=value` or `key expired`."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.expires_wall_ms: dict[str, int] = {}
        self._waiting: dict[str, list[Token]] = {}
        self._timers: Timers[str] = Timers()
        self._steps_taken = 0
        self._snapshot_offset = Offset(0)
        """The offset of the first record of the snapshot that was begun last."""

    def replay(self, record: LogRecord) -> None:
        key = record.key.decode()
        if record.value is None:
            self._remove(key)
        elif record.value == UNREADABLE:
            raise MillstreamError(ErrorCode.CORRUPT_MESSAGE, f"the value of {key} cannot be read")
        else:
            expires, _, value = record.value.decode().partition("|")
            self._set(key, value, int(expires))

    def loading(self, now: Callable[[], Now], effects: ToyEffects) -> Iterator[None]:
        for at, (key, expires_wall_ms) in enumerate(self.expires_wall_ms.items()):
            monotonic_ms, wall_ms = now()
            self._timers.set(key, monotonic_ms + max(0, expires_wall_ms - wall_ms))
            if at % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                yield

    def handle(self, command: ToyCommand, token: Token, now: Now, effects: ToyEffects) -> None:
        match command:
            case Put():
                for key in (command.key, command.second_key):
                    if key:
                        self._put(key, command, now, effects)
                effects.reply(token, ToyAnswer(value=command.value))
            case Get():
                effects.replies_at_once = command.at_once
                effects.reply(token, ToyAnswer(value=self.values.get(command.key)))
            case Wait():
                self._waiting.setdefault(command.key, []).append(token)
            case Delete():
                if self._remove(command.key):
                    effects.records.append(LogRecord(command.key.encode(), None))
            case Snapshot():
                self._take_snapshot(command.steps, effects)
                effects.reply(token, ToyAnswer(value=str(len(self.values))))
            case Fail():
                raise ZeroDivisionError("the machine failed on purpose")

    def _take_snapshot(self, steps: int, effects: ToyEffects) -> None:
        if self._steps_taken == 0:
            self._snapshot_offset = effects.base_offset
        names = sorted(self.values)[self._steps_taken :: steps]
        effects.records += [self._record(name) for name in names]
        self._steps_taken += 1
        if self._steps_taken == steps:
            self._steps_taken = 0
            effects.trim_below = self._snapshot_offset

    def _put(self, key: str, command: Put, now: Now, effects: ToyEffects) -> None:
        expires_wall_ms = now.wall_ms + command.ttl_ms if command.ttl_ms >= 0 else -1
        self._set(key, command.value, expires_wall_ms)
        if command.ttl_ms >= 0:
            self._timers.set(key, now.monotonic_ms + command.ttl_ms)
        effects.records.append(self._record(key))
        effects.notices.append(f"{key}={command.value}")
        for token in self._waiting.pop(key, ()):
            effects.reply(token, ToyAnswer(value=command.value))

    def tick(self, now: Now, effects: ToyEffects) -> None:
        for key in self._timers.due(now.monotonic_ms, most=LOADED_AT_ONCE):
            self._remove(key)
            effects.records.append(LogRecord(key.encode(), None))
            effects.notices.append(f"{key} expired")

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms

    def may_be_due_before(self, at_ms: int) -> bool:
        return self._timers.may_be_before(at_ms)

    def _record(self, key: str) -> LogRecord:
        return LogRecord(key.encode(), f"{self.expires_wall_ms.get(key, -1)}|{self.values[key]}".encode())

    def _set(self, key: str, value: str, expires_wall_ms: int) -> None:
        self._remove(key)
        self.values[key] = value
        if expires_wall_ms >= 0:
            self.expires_wall_ms[key] = expires_wall_ms

    def _remove(self, key: str) -> bool:
        self._timers.cancel(key)
        self.expires_wall_ms.pop(key, None)
        return self.values.pop(key, None) is not None

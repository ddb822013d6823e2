"""Logs each request with its duration and errors at level DEBUG, without the names, keys and values in it.

The dispatch table wraps its handlers when a route is first used, so requests cost nothing more at other levels.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any

from millstream.broker.dispatch.request import Answer, BrokerRequest, DeferredResponse, Handler, Result, Work
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.client_events import caller_fields
from millstream.wire.messages import read_response

ERRORS_MAX = 3
"""Maximum number of different errors of one response that are logged."""

_log = logging.getLogger(__name__)


def logs_requests() -> bool:
    """True if requests are logged."""
    return _log.isEnabledFor(logging.DEBUG)


def logged(api: str, handle: Handler, now_s: Callable[[], float]) -> Handler:
    """Return a handler that also logs each request when its response is ready.

    `now_s` is a precise clock: the event loop's own may have a resolution of a millisecond, and stands still meanwhile.
    """

    def handle_and_log(request: BrokerRequest) -> Result:
        line = _RequestLine(api, request, now_s)
        try:
            result = handle(request)
        except Exception as error:
            line.failed(error)
            raise
        if isinstance(result, Work):
            return result._replace(run=_LoggedWork(result.run, line))
        if isinstance(result, DeferredResponse):
            return _watched(result, line)
        line.answered(result)
        return result

    return handle_and_log


class _RequestLine:
    """The log line of one request."""

    def __init__(self, api: str, request: BrokerRequest, now_s: Callable[[], float]) -> None:
        self._api = api
        self._version = request.version
        self._fields = {"api": api, "version": request.version, **caller_fields(request.peer)}
        self._now_s = now_s
        self._begun_s = now_s()

    def answered(self, answer: Answer | None) -> None:
        errors = ",".join(_errors_in(self._api, self._version, answer))
        self._write({"error": errors} if errors else {})

    def failed(self, error: BaseException) -> None:
        self._write({"error": error.code.name if isinstance(error, MillstreamError) else type(error).__name__})

    def _write(self, outcome: Mapping[str, object]) -> None:
        duration_ms = round((self._now_s() - self._begun_s) * 1000, 3)
        _log.debug("request handled", extra={**self._fields, "duration_ms": duration_ms, **outcome})


class _LoggedWork(Coroutine[Any, Any, Answer | None]):
    """The coroutine of a request, which logs the request when it ends."""

    def __init__(self, run: Coroutine[Any, Any, Answer | None], line: _RequestLine) -> None:
        self._run = run
        self._line = line

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._run.send(value))

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        raised = kind if value is None else value
        return self._step(lambda: self._run.throw(raised))

    def close(self) -> None:
        self._run.close()

    def __await__(self) -> Any:
        return self._run.__await__()

    def _step(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except StopIteration as end:
            self._line.answered(end.value)
            raise
        except BaseException as error:
            self._line.failed(error)
            raise


def _watched(inner: DeferredResponse, line: _RequestLine) -> DeferredResponse:
    """Return a response that is ready when `inner` is ready, and logs the request then."""
    outer = DeferredResponse(inner.hurry, inner.change)

    def done(inner: DeferredResponse) -> None:
        if inner.error is not None:
            line.failed(inner.error)
            outer.fail(inner.error)
        else:
            line.answered(inner.answer)
            outer.finish(inner.answer)

    def start(work: Work, later: DeferredResponse) -> None:
        outer.run(work, later)

    if inner.is_done:
        done(inner)
    else:
        inner.when_done(done, start)
    return outer


def _errors_in(api: str, version: int, answer: Answer | None) -> list[str]:
    """Return the names of the errors in a response. A response in pieces contains records, and is not decoded."""
    if not isinstance(answer, bytes):
        return []
    try:
        fields = read_response(api, version, memoryview(answer), 0)
    except MillstreamError:
        return []  # For example the response to an unsupported version, which has another layout.
    names = dict.fromkeys(ErrorCode.of(number).name for number in _error_numbers(fields) if number)
    return list(names)[:ERRORS_MAX]


def _error_numbers(value: object) -> Iterator[int]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name == "error_code":
                yield each
            else:
                yield from _error_numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _error_numbers(each)

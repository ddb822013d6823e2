"""Logs the changes that clients cause, each with the address and the client id of the client.

The listener of the broker sets the client in the context of the tasks that run its requests. Tasks that such a task
creates inherit the client. Without a client, for example in maintenance, an event has no `peer` and no `client_id`.

A client could flood the log with such events. They are therefore marked, and the handlers of `process.logs` limit the
number of marked lines.
"""

import logging
from collections.abc import Mapping
from contextvars import Context, ContextVar, copy_context
from typing import NamedTuple, Protocol

CLIENT_ID_CHARACTERS_MAX = 200
LIMITED = "is_limited"
"""The attribute of a log record whose lines are limited."""


class Caller(Protocol):
    """A client, as log lines name it."""

    @property
    def endpoint(self) -> str:
        """The address and port of the client."""

    @property
    def client_id(self) -> str | None:
        """The client id; None if the client has not sent one yet."""


class NamedCaller(NamedTuple):
    """A client of another process, which passed on how log lines name it."""

    endpoint: str
    client_id: str | None


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def context_of(caller: Caller) -> Context:
    """Returns a copy of the current context in which logged events name this client."""
    context = copy_context()
    context.run(_caller.set, caller)
    return context


def set_caller(caller: Caller) -> None:
    """Names this client in the events that the current task logs."""
    _caller.set(caller)


def caller_fields(caller: Caller | None = None) -> dict[str, object]:
    """Returns the fields `peer` and `client_id` of a client; without an argument, of the client of this context."""
    caller = _caller.get() if caller is None else caller
    if caller is None:
        return {}
    fields: dict[str, object] = {"peer": caller.endpoint}
    if caller.client_id is not None:
        fields["client_id"] = caller.client_id
    return fields


def log_client_event(logger: logging.Logger, event: str, **fields: object) -> None:
    """Logs an event at INFO with the client of this context."""
    log_limited(logger, event, {**caller_fields(), **fields})


def log_limited(logger: logging.Logger, event: str, fields: Mapping[str, object]) -> None:
    """Logs an event at INFO that a client could repeat often."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(event, extra={**fields, LIMITED: True})

"""Runs the awaited parts of requests as tasks. Events that such a task logs name the client of the connection."""

import asyncio
from collections.abc import Callable
from contextvars import Context

from millstream.broker.dispatch.request import Answer, DeferredResponse, Work
from millstream.process.client_events import Caller, context_of


class WorkRunner:
    """Starts the work of one connection's requests and reports failures."""

    __slots__ = ("_caller", "_context", "_fail", "_tasks")

    def __init__(
        self,
        tasks: "dict[asyncio.Task[Answer | None], None]",
        fail: Callable[[BaseException], None],
        caller: Caller,
    ) -> None:
        """Store the registry of tasks and the failure callback.

        `tasks` keeps references to running tasks, because the event loop does not. `fail` is called with the exception
        of work that failed or was cancelled.
        """
        self._tasks = tasks
        self._fail = fail
        self._caller = caller
        self._context: Context | None = None

    def start(self, work: Work, later: DeferredResponse) -> None:
        """Run the work as a task. Its result finishes `later`."""
        if self._context is None:
            self._context = context_of(self._caller)  # Once per connection: its tasks share the context.
        task = asyncio.get_running_loop().create_task(work.run, context=self._context)
        self._tasks[task] = None

        def ended(task: "asyncio.Task[Answer | None]") -> None:
            self._tasks.pop(task, None)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._fail(error)
            else:
                later.finish(task.result())

        task.add_done_callback(ended)

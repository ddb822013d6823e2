"""The numbered writer stores rows once, even if the job that writes them is repeated."""

from typing import TYPE_CHECKING

from millstream.model.names import check_topic_name
from millstream.model.roles import Role
from millstream.sdk.aio.facade import AsyncFacade, AsyncPortal
from millstream.sdk.client_context import ClientContext
from millstream.sdk.numbered.engine import NumberedEngine
from millstream.sdk.numbered.options import NumberedOptions

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncNumberedWriter(AsyncFacade):
    """Stores rows of Arrow record batches effectively once. Create it with `client.numbered_writer`.

    Use `async with` or call `close()`. All rows are stored once `finish` has returned.

    The rows of each partition are numbered from 0, and the brokers store the last number under the writer's name. A
    writer with the same name and epoch that gets the same rows in the same order stores only the missing rows. It may
    run later, at the same time, or on another machine. A higher epoch starts again at 0 and fences lower epochs: a
    writer that still uses a lower epoch treats its remaining rows as stored. Brokers remember a name for 7 days after
    its last row. Only one task or thread may use a writer at a time.
    """

    def __init__(self, portal: AsyncPortal, context: ClientContext, topic: str, options: NumberedOptions) -> None:
        check_topic_name(topic)
        caller = context.new_caller(Role.PRODUCER)
        context.lifecycle.check()
        self._engine = portal.call(lambda: NumberedEngine(caller, context.clock, topic, options))
        super().__init__(portal, context, context.adopt("numbered writer", caller, self._engine.close))
        self.topic = topic

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Add the rows of an Arrow record batch; waits while too many rows are in flight.

        The batch has a column `value`, and optionally `key`, `headers`, `partition` and `timestamp`. A row goes to the
        partition in its column `partition`; otherwise the hash of its key decides, as in Kafka's Java client. Rows
        without both go to one partition after the other, by their number. Raises INVALID_REQUEST for unsuitable
        columns, and UNKNOWN_PRODUCER_ID if the broker no longer knows this writer's rows.
        """
        await self._do(self._engine.write(batch))

    async def finish(self) -> int:
        """Wait until all rows are stored, by this writer or an earlier one; returns their number."""
        return await self._do(self._engine.finish())

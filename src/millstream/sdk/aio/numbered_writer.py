"""Writes rows under a name of its own, so that whoever comes again under that name adds what is missing."""

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
    """Made by `client.numbered_writer`. Use `async with`, or `close()` it; `finish` tells that all is stored.

    Its rows are numbered from 0 in each partition, and the brokers keep, under its name, how far it is. One of the same
    name and epoch that is given the same rows in the same order stores only what is missing, be it a repetition, a
    twin at the same time or one on another machine. A later epoch begins anew, and ends all before it: whoever
    still writes in an earlier one is taken to have stored everything. Brokers keep a name for 7 days after its last
    row. It is for one task at a time (without `async`: one thread).
    """

    def __init__(self, portal: AsyncPortal, context: ClientContext, topic: str, options: NumberedOptions) -> None:
        check_topic_name(topic)
        asking = context.asking(Role.PRODUCER)
        context.lifecycle.check()
        self._engine = portal.call(lambda: NumberedEngine(asking, context.clock, topic, options))
        super().__init__(portal, context, context.adopt("numbered writer", asking, self._engine.close))
        self.topic = topic

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Take the rows of an Arrow record batch: a column `value`, and `key`, `headers`, `partition` and `timestamp`
        if need be. Waits while much is under way.

        Each row goes to the partition its column says; else the key decides, as for clients in Java; rows without
        either go to one partition after the other, by their place among all rows. INVALID_REQUEST for columns that
        cannot be taken so. UNKNOWN_PRODUCER_ID when the broker has forgotten what this writer has stored.
        """
        await self._do(self._engine.write(batch))

    async def finish(self) -> int:
        """Wait until all rows are stored, by this writer or before it; how many they are."""
        return await self._do(self._engine.finish())

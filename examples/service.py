"""Runs an asyncio service that writes an invoice for each order, and shuts down on Ctrl-C or SIGTERM.

    python examples/service.py [HOST:PORT]

A signal cancels the service. At shutdown the consumer commits finished orders and leaves its group, so another instance
continues immediately. The producer sends its buffered messages. An order is finished when its invoice is stored. The
next instance receives unfinished orders again, and the message id prevents a second copy of an invoice.
"""

import asyncio
import signal
import sys

import msgspec

import millstream


class Order(msgspec.Struct):
    number: int
    amount: float


async def serve(bootstrap: str) -> None:
    async with (
        millstream.connect_async(bootstrap) as client,
        client.producer(group="billing") as producer,
        client.consumer("orders", group="billing", start="beginning", values=Order) as consumer,
    ):
        print("ready", flush=True)
        async for message in consumer:
            order = message.value
            if order is None:
                continue  # A tombstone.
            invoice = f"invoice for order {order.number}: {order.amount:.2f}"
            await producer.put("invoices", invoice, message_id=f"invoice-{order.number}")
            print(invoice, flush=True)


async def main(bootstrap: str = "127.0.0.1:9092") -> None:
    serving = asyncio.create_task(serve(bootstrap))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        print("stopped")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

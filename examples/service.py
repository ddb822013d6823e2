"""An asyncio service: answers each order with an invoice, and ends cleanly on Ctrl-C or SIGTERM.

    python examples/service.py [HOST:PORT]

To end it is to cancel it. On the way out the consumer commits what is finished and leaves its group, so that another
instance goes on at once; the producer sends what it has. An order whose invoice was not stored yet is not finished: the
next instance gets it again, and the invoice's message id sees to it that it is written once.
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
            order: Order = message.value
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

"""Writes a few messages to a topic and reads them back.

python examples/hello.py [HOST:PORT]        default: 127.0.0.1:9092, where `make run` starts a broker
"""

import sys

import millstream


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    with millstream.connect(bootstrap) as client:
        with client.producer() as producer:  # Closing sends the remaining messages.
            receipt = producer.put("hello", "Hello, world!", key="greeting")
            print("stored at", receipt.result())  # The message is on the broker's disk now.
            producer.put_many("hello", ["How are you?", "Goodbye!"])

        with client.consumer("hello", start="beginning", stop="latest", values=str) as consumer:
            for message in consumer:
                print(message.offset, message.value)


if __name__ == "__main__":
    main(*sys.argv[1:])

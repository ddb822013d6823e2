"""Replays the messages of a topic from a time on, or between two times.

python examples/replay.py [HOST:PORT]
"""

import sys
from datetime import UTC, datetime, timedelta

import millstream


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    noon = datetime.now(tz=UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)

    with millstream.connect(bootstrap) as client:
        with client.producer() as producer:
            for minutes in range(0, 60, 10):
                at = noon + timedelta(minutes=minutes)
                # With a message id, a second run of this program stores no duplicates.
                producer.put("visits", f"visit at {at:%H:%M}", timestamp=at, message_id=f"visit-{at.isoformat()}")

        print("since 12:30:")
        for message in client.consumer("visits", start=noon + timedelta(minutes=30), stop="latest", values=str):
            print(" ", message.value)

        print("from 12:10 to 12:25:")
        until = noon + timedelta(minutes=25)
        for message in client.consumer("visits", start=noon + timedelta(minutes=10), stop=until, values=str):
            print(" ", message.value)

        print("in the last hour:")
        with client.consumer("visits", start=timedelta(hours=1), stop="latest") as consumer:
            print(" ", len(list(consumer)), "visits")


if __name__ == "__main__":
    main(*sys.argv[1:])

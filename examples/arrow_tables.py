"""Writes an Arrow table as messages and reads them back as a table, without a Python object per message.

pip install 'millstream[arrow]'    # docs/installation.md: what `millstream` stands for
python examples/arrow_tables.py [HOST:PORT]
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc

import millstream

READINGS = 100_000


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    sensors = pa.array([f"sensor {number % 4}" for number in range(READINGS)])
    table = pa.table({"key": sensors, "value": pa.array([str(number % 100) for number in range(READINGS)])})

    with millstream.connect(bootstrap) as client:
        with client.producer(compression="zstd") as producer:
            places = producer.put_many("readings", table).result()
            print(len(places), "rows are stored")

        with client.consumer("readings", start="beginning", stop="latest") as consumer:
            read = consumer.arrow_table()

    readings = pa.table(
        {
            "sensor": read["key"].cast(pa.string()),
            "value": read["value"].cast(pa.string()).cast(pa.int64()),
        }
    )
    for row in readings.group_by("sensor").aggregate([("value", "mean")]).sort_by("sensor").to_pylist():
        print(f"{row['sensor']}: {row['value_mean']}")
    print("highest:", pc.max(readings["value"]))


if __name__ == "__main__":
    main(*sys.argv[1:])

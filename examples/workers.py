"""Shares the jobs of a topic among three worker processes. One is killed, and the others complete its jobs.

    python examples/workers.py [HOST:PORT]

A message is finished when its worker asks for the next one. If a worker dies, other workers receive its unfinished
messages after the broker's `consumer_session_timeout_ms`. Some jobs run twice, so jobs must be idempotent.
"""

import multiprocessing
import os
import sys
from collections import Counter

import millstream

JOBS = [f"job {number}" for number in range(60)]
PARTITIONS = 6  # The maximum number of workers that receive messages.
WORKERS = 3
DIES_AFTER = 5


def work(bootstrap: str) -> None:
    """Processes jobs until the process is ended."""
    with millstream.connect(bootstrap) as client, client.producer() as producer:
        for job in client.consumer("jobs", group="workers", start="beginning"):
            producer.put("done", value=job.value, key=str(os.getpid())).result()


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    processes = multiprocessing.get_context("spawn")  # A client cannot be used after a fork.
    workers = [processes.Process(target=work, args=[bootstrap], daemon=True) for _ in range(WORKERS)]
    with millstream.connect(bootstrap) as client:
        client.create_topic("jobs", partitions=PARTITIONS, exist_ok=True)
        client.create_topic("done", exist_ok=True)
        with client.consumer("done", start="latest", values=str) as reports, client.producer() as producer:
            for number, job in enumerate(JOBS):
                producer.put("jobs", job, partition=number % PARTITIONS)
            for worker in workers:
                worker.start()

            missing = set(JOBS)
            done_by: Counter[int] = Counter()
            victim = None
            for report in reports:
                missing.discard(report.value)
                pid = int(report.key or 0)
                done_by[pid] += 1
                if not missing:
                    break
                if done_by[pid] == DIES_AFTER and victim is None:
                    victim = next(worker for worker in workers if worker.pid == pid)
                    victim.kill()
                    print("a worker was killed in the middle of its work")
    print(f"all {len(JOBS)} jobs are done")


if __name__ == "__main__":
    main(*sys.argv[1:])

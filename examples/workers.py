"""A group of workers: three processes share a topic of jobs. One is killed, and the others do what it had not done.

    python examples/workers.py [HOST:PORT]

A message counts as done when its worker asks for the next one. So a worker that dies leaves its last messages to be
done once more, after the broker's `consumer_session_timeout_ms`: it should do no harm to do a job twice.
"""

import multiprocessing
import os
import sys
from collections import Counter

import millstream

JOBS = [f"job {number}" for number in range(60)]
PARTITIONS = 6  # No more workers than that have something to do.
WORKERS = 3
DIES_AFTER = 5


def work(bootstrap: str) -> None:
    """What each worker does, until somebody ends it."""
    with millstream.connect(bootstrap) as client, client.producer() as producer:
        for job in client.consumer("jobs", group="workers", start="beginning"):
            producer.put("done", value=job.value, key=str(os.getpid())).result()


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    processes = multiprocessing.get_context("spawn")  # After a fork a client cannot be used.
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

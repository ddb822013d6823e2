"""A group of workers: three processes share a topic of jobs. One is killed, and the others do what it had not done.

    python examples/workers.py [HOST:PORT]

A message counts as done when its worker asks for the next one. So a worker that dies leaves its last message, or a few,
to be done once more: what a worker does should do no harm when it is done twice.
"""

import multiprocessing
import os
import sys

import penstock

JOBS = [f"job {number}" for number in range(60)]
WORKERS = 3
DIES_AFTER = 5


def work(bootstrap: str) -> None:
    """What each worker does, until somebody ends it."""
    with penstock.connect(bootstrap) as client, client.producer() as producer:
        for job in client.consumer("jobs", group="workers", start="beginning"):
            producer.put("done", value=job.value, key=str(os.getpid())).result()


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    with penstock.connect(bootstrap) as client:
        client.create_topic("jobs", partitions=6)  # No more workers than partitions have something to do.
        client.create_topic("done")
        with client.producer() as producer:
            producer.put_many("jobs", JOBS, partition=[number % 6 for number in range(len(JOBS))])

        processes = multiprocessing.get_context("spawn")  # A fork would share the client, which is refused.
        workers = [processes.Process(target=work, args=[bootstrap], daemon=True) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()

        missing = set(JOBS)
        done_by: dict[bytes | None, int] = {}
        for report in client.consumer("done", start="beginning", values=str):
            missing.discard(report.value)
            done_by[report.key] = done_by.get(report.key, 0) + 1
            if not missing:
                break
            if done_by[report.key] == DIES_AFTER and all(worker.exitcode is None for worker in workers):
                victim = next(worker for worker in workers if str(worker.pid).encode() == report.key)
                victim.kill()
                victim.join()
                print("a worker was killed in the middle of its work")
        print(f"all {len(JOBS)} jobs are done")
        for worker in workers:
            worker.terminate()
            worker.join()


if __name__ == "__main__":
    main(*sys.argv[1:])

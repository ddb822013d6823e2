"""Plants a fault into the broker's process: the broker forgets idempotent producers, so that it stores retries twice.

Python imports `sitecustomize` before other modules if this directory is on its path, so the broker's code is unchanged.
"""

from millstream.partition.producers import Producers, StoredBatch


def _know_nothing(
    self: Producers, producer_id: int, epoch: int, base_sequence: int, last_sequence: int
) -> StoredBatch | None:
    return None


Producers.check = _know_nothing  # type: ignore[method-assign]  # planting a fault is the purpose

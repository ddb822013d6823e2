"""A fault planted into the broker's process, which finds this module first when this directory is on its path.

Python imports `sitecustomize` before anything else, so the broker itself runs as it is. Here it forgets what producers
sent before, so that a retry is stored a second time.
"""

from millstream.partition.producers import Producers, StoredBatch


def _know_nothing(
    self: Producers, producer_id: int, epoch: int, base_sequence: int, last_sequence: int
) -> StoredBatch | None:
    return None


Producers.check = _know_nothing  # type: ignore[method-assign]  # planting a fault is the purpose

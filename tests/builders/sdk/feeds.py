"""Provides a caller for feeds against scripted brokers, and counts its lookups."""

from builders.sdk.scripted_broker import Scene
from millstream.sdk.connection.retrying_caller import RetryingCaller


class EvenEntropy:
    """Entropy under which backoffs have exactly their nominal length."""

    def token(self, size_bytes: int) -> bytes:
        return b"\x80" + bytes(size_bytes - 1)


def caller(scene: Scene) -> RetryingCaller:
    """Return a caller of the scene's cluster with exact backoffs."""
    caller = scene.client()._caller
    return RetryingCaller(caller.cluster, EvenEntropy(), caller.workers)


def lookups(scene: Scene) -> int:
    """Return the number of metadata requests to the brokers."""
    return len(scene.cluster.requests("Metadata"))

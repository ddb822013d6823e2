"""Owns the current cluster image: replaces it by the next one, and passes each delta to the listeners."""

from collections.abc import Callable

from millstream.catalog.cluster_image import ClusterDelta, ClusterImage, Transition
from millstream.model.broker_endpoint import BrokerEndpoint
from millstream.model.ids import BrokerId

ImageListener = Callable[[ClusterImage, ClusterDelta], None]


class ClusterMetadata:
    """The current cluster image of one broker, and its listeners.

    Invariant: each published image is the successor of the current one, so no reader sees the version decrease.
    Listeners are called synchronously, in the order in which they were added. They already find the new image in
    `image`.
    """

    def __init__(self, node_id: BrokerId, image: ClusterImage) -> None:
        self.node_id = node_id
        """The node id of this broker."""
        self.image = image
        """The current image."""
        self._listeners: list[ImageListener] = []

    @classmethod
    def of_single_broker(cls, cluster_id: str, broker: BrokerEndpoint) -> "ClusterMetadata":
        """Returns the metadata of a cluster with a single broker, which is its own controller, before topics are
        loaded."""
        return cls(broker.node_id, ClusterImage.of(cluster_id, broker.node_id, [broker], (), ()))

    def publish(self, transition: Transition) -> None:
        """Replaces the image by its successor, and calls the listeners."""
        image, delta = transition
        assert image.version == delta.version == self.image.version + 1, "an image is replaced by its successor"
        self.image = image
        for listener in list(self._listeners):
            listener(image, delta)

    def add_listener(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: ImageListener) -> None:
        self._listeners.remove(listener)

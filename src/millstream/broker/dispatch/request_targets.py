"""Finds the partitions or groups that a request names, for the order of requests (see `dispatch.open_changes`)."""

from collections.abc import Iterable, Iterator

from millstream.broker.dispatch.open_changes import Targets, TargetsOf
from millstream.broker.dispatch.request import BrokerRequest
from millstream.catalog.cluster_image import ClusterImage
from millstream.wire.messages import read_request
from millstream.wire.topic_ref import TopicRef

_GROUP_LISTS = ("groups", "group_ids", "groups_names")


def partitions_in(
    api: str, *, topic: str = "name", partitions: str = "partitions", number: str = "partition_index"
) -> TargetsOf:
    """Return a function that finds the partitions in these fields of the request's topics.

    `number` is empty if the request lists plain partition numbers.
    """

    def targets(request: BrokerRequest) -> Targets:
        fields = read_request(api, request.version, request.frame, request.body)
        return {(each[topic], row[number] if number else row) for each in fields["topics"] for row in each[partitions]}

    return targets


def groups_in(api: str) -> TargetsOf:
    """Return a function that finds the groups that a request names. A request that names none may read all of them."""

    def targets(request: BrokerRequest) -> Targets:
        fields = read_request(api, request.version, request.frame, request.body)
        listed = [each for name in _GROUP_LISTS for each in fields.get(name) or ()]
        names = {each if isinstance(each, str) else each["group_id"] for each in listed}
        if "group_id" in fields:
            names.add(fields["group_id"])
        return names or None

    return targets


def named_partitions(image: ClusterImage, partitions: Iterable[tuple[TopicRef, int]]) -> Iterator[tuple[str, int]]:
    """Yield the partitions by topic name. Topic ids that do not exist are left out."""
    for topic, number in partitions:
        if isinstance(topic, str):
            yield topic, number
        elif (found := image.topic_by_id(topic)) is not None:
            yield found.name, number

"""What AlterConfigs and IncrementalAlterConfigs have in common: each resource by itself, with its own error."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from millstream.broker.config_resources import Resource, Resources, SettingsChange
from millstream.broker.response_rows import encode_rows
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import write_response

RESOURCES_MAX = 1_000
"""So many resources one request may alter: each is a transaction of the catalog."""


class Alteration(NamedTuple):
    """The settings `names` of a resource, and what becomes of them."""

    resource: Resource
    names: Sequence[str]
    change: SettingsChange


async def answer_alterations(
    api: str, version: int, resources: Resources, wanted: Sequence[Alteration], validate_only: bool
) -> bytes:
    """Alter one resource after another, and tell for each how that went."""
    times = Counter(each.resource for each in wanted)
    rows = []
    for resource, names, change in wanted:
        row = {"resource_type": resource.kind, "resource_name": resource.name, "error_message": None}
        try:
            if times[resource] > 1:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "each resource may be named once")
            if len(wanted) > RESOURCES_MAX:
                raise MillstreamError(ErrorCode.POLICY_VIOLATION, f"more than {RESOURCES_MAX} resources in one request")
            await resources.alter(resource, names, change, validate_only=validate_only)
        except MillstreamError as error:
            row |= {"error_code": error.code.number, "error_message": error.detail}
        rows.append(row)
    return write_response(api, version, {"responses": await encode_rows(api, version, ("responses",), rows)})

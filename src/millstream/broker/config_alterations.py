"""Applies the changes of AlterConfigs and IncrementalAlterConfigs, each resource separately and with its own error."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from millstream.broker.config_resources import Resource, Resources, SettingsChange
from millstream.broker.dispatch.request import BrokerRequest
from millstream.broker.response_rows import encode_rows
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import write_response

RESOURCES_MAX = 1_000
"""Maximum number of resources in one request. Each resource takes one transaction of the catalog."""


class Alteration(NamedTuple):
    """A change to the settings `names` of one resource."""

    resource: Resource
    names: Sequence[str]
    change: SettingsChange


async def answer_alterations(
    api: str, request: BrokerRequest, resources: Resources, wanted: Sequence[Alteration], validate_only: bool
) -> bytes:
    """Alter the resources one after another and return the response, with a result for each."""
    version = request.version
    times = Counter(each.resource for each in wanted)
    rows = []
    for resource, names, change in wanted:
        row = {"resource_type": resource.kind, "resource_name": resource.name, "error_message": None}
        try:
            if times[resource] > 1:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, "the request names this resource repeatedly")
            if len(wanted) > RESOURCES_MAX:
                raise MillstreamError(
                    ErrorCode.POLICY_VIOLATION, f"the request names more than {RESOURCES_MAX} resources"
                )
            await resources.alter(resource, names, change, request.access, validate_only=validate_only)
        except MillstreamError as error:
            row |= {"error_code": error.code.number, "error_message": error.detail}
        rows.append(row)
    return write_response(api, version, {"responses": await encode_rows(api, version, ("responses",), rows)})

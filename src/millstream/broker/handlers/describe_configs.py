"""DescribeConfigs: lists the settings of each resource with value, type, source and documentation."""

from collections.abc import Iterator
from typing import Any

from millstream.broker.config_entries import TYPES, ConfigEntry
from millstream.broker.config_resources import Resource, Resources
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import Group, encode_groups
from millstream.model.authorization import Access
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response
from millstream.wire.schema_readers import Fields

API = "DescribeConfigs"


class DescribeConfigsHandler:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        return Work(self._answer(request.version, fields, request.access))

    async def _answer(self, version: int, fields: Fields, access: Access) -> bytes:
        rows = await encode_groups(API, version, ("results",), "configs", self._groups(fields, access))
        return write_response(API, version, {"results": rows})

    def _groups(self, fields: Fields, access: Access) -> Iterator[Group]:
        # Duplicates are dropped: they would let a small request cause a response of any size.
        wanted = {Resource(row["resource_type"], row["resource_name"]): row for row in fields["resources"]}
        for resource, row in wanted.items():
            answer = {"resource_type": resource.kind, "resource_name": resource.name, "error_message": None}
            try:
                settings = self._resources.settings(resource, access)
            except MillstreamError as error:
                yield answer | {"error_code": error.code.number, "error_message": error.detail}, ()
            else:
                names = frozenset(row["configuration_keys"] or ())
                yield answer, (_row(each, fields) for each in settings if not names or each.name in names)


def _row(setting: ConfigEntry, request: Fields) -> dict[str, Any]:
    synonyms = setting.synonyms if request["include_synonyms"] else ()
    return {
        "name": setting.name,
        "value": setting.value,
        "read_only": setting.is_read_only,
        "config_source": setting.source,
        "synonyms": [synonym._asdict() for synonym in synonyms],
        "config_type": TYPES[setting.kind],
        "documentation": setting.doc if request["include_documentation"] else None,
    }

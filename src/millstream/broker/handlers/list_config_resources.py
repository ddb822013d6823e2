"""ListConfigResources: lists the resources with settings. Version 0 lists client metrics subscriptions, always none."""

from millstream.broker.config_resources import ConfigResourceKind, Resources
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.response_rows import encode_rows
from millstream.model.errors import MillstreamError
from millstream.wire.messages import read_request, write_response

API = "ListConfigResources"
_KINDS_FROM = 1


class ListConfigResourcesHandler:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        kinds = fields["resource_types"] if request.version >= _KINDS_FROM else [ConfigResourceKind.CLIENT_METRICS]
        return Work(self._answer(request.version, list(dict.fromkeys(kinds))))

    async def _answer(self, version: int, kinds: list[int]) -> bytes:
        try:
            named = self._resources.names(kinds)
            rows = ({"resource_type": kind, "resource_name": name} for kind, name in named)
            encoded = await encode_rows(API, version, ("config_resources",), rows)
        except MillstreamError as error:
            return write_response(API, version, {"error_code": error.code.number})
        return write_response(API, version, {"config_resources": encoded})

"""AlterConfigs: replaces all settings of a topic or group. Those that are not named return to the broker's defaults."""

from millstream.broker.config_alterations import Alteration, answer_alterations
from millstream.broker.config_resources import Resource, Resources
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields

API = "AlterConfigs"


class AlterConfigsHandler:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        wanted = [_alteration(row) for row in fields["resources"]]
        work = answer_alterations(API, request, self._resources, wanted, fields["validate_only"])
        return Work(work, change=CHANGED_TOPICS)


def _alteration(row: Fields) -> Alteration:
    settings = {each["name"]: each["value"] for each in row["configs"]}

    def change(_: object) -> dict[str, str | None]:
        for name, value in settings.items():
            if value is None:
                raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name[:100]}: the value is null; give a value")
        return settings

    names = [each["name"] for each in row["configs"]]
    return Alteration(Resource(row["resource_type"], row["resource_name"]), names, change)

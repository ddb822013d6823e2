"""IncrementalAlterConfigs: changes single settings of a topic or group; the others stay unchanged.

A setting can be set or deleted. If it is a list, members can be appended or removed.
"""

from collections.abc import Mapping, Sequence

from millstream.broker.config_alterations import Alteration, answer_alterations
from millstream.broker.config_resources import Resource, Resources
from millstream.broker.dispatch.open_changes import CHANGED_TOPICS
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.groups.group_configs import GROUP_SETTINGS
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.topics.setting_table import TABLE, SettingKind
from millstream.topics.settings import effective
from millstream.wire.messages import read_request
from millstream.wire.schema_readers import Fields

API = "IncrementalAlterConfigs"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class IncrementalAlterConfigsHandler:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def __call__(self, request: BrokerRequest) -> Result:
        fields = read_request(API, request.version, request.frame, request.body)
        wanted = [self._alteration(row) for row in fields["resources"]]
        work = answer_alterations(API, request, self._resources, wanted, fields["validate_only"])
        return Work(work, change=CHANGED_TOPICS)

    def _alteration(self, row: Fields) -> Alteration:
        names = [each["name"] for each in row["configs"]]
        defaults = self._resources.topics.defaults

        def change(old: Mapping[str, str]) -> dict[str, str | None]:
            settings: dict[str, str | None] = dict(old)
            for each in row["configs"]:
                _apply(settings, each, old, defaults)
            return settings

        return Alteration(Resource(row["resource_type"], row["resource_name"]), names, change)


def _apply(settings: dict[str, str | None], step: Fields, old: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    name, operation, value = step["name"], step["config_operation"], step["value"]
    if operation == _DELETE:
        settings.pop(name, None)
        return
    if operation not in (_SET, _APPEND, _SUBTRACT):
        raise MillstreamError(
            ErrorCode.INVALID_REQUEST,
            f"{name[:100]}: unknown operation {operation}; use 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
        )
    if value is None:
        raise MillstreamError(ErrorCode.INVALID_REQUEST, f"{name[:100]}: the value is null; give a value")
    if operation == _SET:
        settings[name] = value
        return
    row = TABLE.get(name)
    if name in GROUP_SETTINGS or (row is not None and row.kind is not SettingKind.LIST):
        raise MillstreamError(
            ErrorCode.INVALID_CONFIG, f"{name} is not a list, so it cannot be appended to or subtracted from"
        )
    members = _members(effective(name, old, defaults)) if row is not None else []
    settings[name] = ",".join(_joined(members, _members(value), operation))


def _joined(members: Sequence[str], named: Sequence[str], operation: int) -> Sequence[str]:
    if operation == _APPEND:
        return list(dict.fromkeys([*members, *named]))
    return [member for member in members if member not in named]


def _members(value: str) -> list[str]:
    return [member.strip() for member in value.split(",")] if value.strip() else []

"""Collects and prints the partitions and settings of one topic."""

from typing import Any, NamedTuple

from millstream.cli.output import counted, print_line, print_table, shown_size
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.setting_values import readable_setting
from millstream.sdk.admin.admin_results import ConfigSetting, ResourceKind
from millstream.sdk.admin.topic_sizes import PartitionSize, partition_sizes
from millstream.sdk.responses import TopicView
from millstream.sdk.wire_client import WireClient


class Description(NamedTuple):
    view: TopicView
    partitions: list[PartitionSize]
    settings: list[ConfigSetting] | None
    """Settings, or None if the broker cannot report them."""

    def document(self) -> dict[str, Any]:
        return {
            "name": self.view.name,
            "id": str(self.view.topic_id),
            "internal": self.view.is_internal,
            "partitions": [
                {
                    "partition": row.view.number,
                    "leader": row.view.leader_id,
                    "leader_epoch": row.view.leader_epoch,
                    "replicas": list(row.view.replicas),
                    "in_sync": list(row.view.in_sync),
                    "first_offset": row.extent.first if row.extent else None,
                    "next_offset": row.extent.next if row.extent else None,
                    "bytes": row.size_bytes,
                }
                for row in self.partitions
            ],
            "settings": None
            if self.settings is None
            else [{"name": row.name, "value": row.value, "source": row.source} for row in self.settings],
        }

    def print(self) -> None:
        count = counted(len(self.partitions), "partition")
        print_line(f"{self.view.name}: {count}, id {self.view.topic_id}{', internal' * self.view.is_internal}")
        print_line()
        columns = ("partition", "leader", "replicas", "in sync", "first", "next", "size")
        numbers = ("partition", "leader", "first", "next", "size")
        print_table(columns, [_cells(row) for row in self.partitions], numbers=numbers)
        print_line()
        if self.settings is None:
            print_line("The broker cannot report settings.")
        elif self.settings:
            rows = [(row.name, _value(row), row.source) for row in self.settings]
            print_table(("setting", "value", "source"), rows)
        else:
            print_line("All settings are at their defaults; --all-settings shows them.")


def _cells(row: PartitionSize) -> tuple[object, ...]:
    view = row.view
    offsets = ("damaged", "damaged") if row.extent is None else row.extent
    return (
        view.number,
        view.leader_id if view.leader_id >= 0 else "none",
        ", ".join(map(str, view.replicas)),
        ", ".join(map(str, view.in_sync)),
        *offsets,
        "?" if row.size_bytes is None else shown_size(row.size_bytes),
    )


def _value(row: ConfigSetting) -> str:
    return "(secret)" if row.is_secret else readable_setting(row.name, row.value or "")


async def describe_topic(client: WireClient, name: str, timeout_s: float, *, all_settings: bool) -> Description:
    """Requests the partitions and settings of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
    view = await client.describe_topic(name, timeout_s=timeout_s)
    rows = await partition_sizes(client, view, timeout_s)
    return Description(view, rows, await _settings(client, name, timeout_s, all_settings))


async def _settings(client: WireClient, name: str, timeout_s: float, all_settings: bool) -> list[ConfigSetting] | None:
    try:
        settings = await client.admin.describe_settings(ResourceKind.TOPIC, name, timeout_s=timeout_s)
    except MillstreamError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    return [row for row in settings if all_settings or row.source != "default"]

"""Generates docs/configuration.md, and the tables of settings in other guides, from the settings tables of the code.

scripts/configuration_page.py           write them
scripts/configuration_page.py --check   fail if a page is out of date

In another guide, a table lies between the lines `<!-- NAME: written by scripts/configuration_page.py -->` and
`<!-- end -->`.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.broker.config_entries import ConfigEntry, group_settings
from millstream.gateway.settings import TABLE as GATEWAY
from millstream.groups.settings import GroupSettings
from millstream.model.setting_values import readable_setting
from millstream.model.units import format_duration_ms
from millstream.node.settings import TABLE as BROKER
from millstream.process.settings import CLIENT_VARIABLES, SettingField, SettingsTable
from millstream.topics.setting_table import TABLE as TOPICS
from millstream.topics.setting_table import SettingKind, TopicSetting

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "configuration.md"
_BLOCK = re.compile(r"(<!-- ([a-z]+): written by scripts/configuration_page.py -->\n).*?(<!-- end -->)", re.DOTALL)


_HEAD = """\
# Configuration

After this page you can find every setting of the broker, the gateway, the clients, the topics and the groups, with its
default and its meaning. `scripts/configuration_page.py` generates the page from the settings tables.

```sh
millstream serve --retention-ms 3d --segment-bytes 64MiB     # a flag
MILLSTREAM_RETENTION_MS=3d millstream serve                  # an environment variable
millstream serve --config broker.toml                        # a TOML file with: retention_ms = "3d"
millstream topic create orders --set retention.ms=36h        # a setting of one topic
```

## Where settings come from
A setting of a process has one name everywhere: `retention_ms` is the flag `--retention-ms`, the environment variable
`MILLSTREAM_RETENTION_MS` and the key `retention_ms` in the TOML file. A flag overrides an environment variable, which
overrides the file, which overrides the default. An unknown setting, flag or variable is an error that names the nearest
known one. `--config`, or the first variable of each table below, names the TOML file.

## Units
A duration is `500ms`, `30s`, `5m`, `36h`, `7d` or `2w`; a bare number is in milliseconds. A size is `64KiB`, `256MiB`
or `1GiB` (powers of 1024), `500MB` or `1GB` (powers of 1000); a bare number is in bytes. `none` means no limit.
"""

_GATEWAY = """\
`millstream serve` starts a gateway of its own, which uses these settings from the environment. `millstream gateway`
takes them as flags too."""

_CLIENTS: Mapping[str, str] = {
    "MILLSTREAM_BOOTSTRAP": "the context, then `127.0.0.1:9092` | "
    "Bootstrap addresses of the cluster, `host:port`, separated by commas.",
    "MILLSTREAM_CLIENT_CONFIG": "`~/.config/millstream/config.toml` | The file with the contexts of the command line.",
    "MILLSTREAM_CONTEXT": "the current context | The context to use.",
    "MILLSTREAM_DEBUG": "– | Any value: errors of the command line show their traceback.",
}
"""The default and the meaning of each variable."""

_TOPICS = """\
Set them with `millstream topic create NAME --set …`, `millstream topic alter NAME --set …`, `settings=` in the SDK, or
`settings` in the web API. Kafka's tools set them too, with plain numbers. A topic setting that is not set follows the
broker's default. [Topics](topics.md) explains them."""

_GROUPS = """\
`millstream config list group NAME --all` and Kafka's tools show these settings. The session timeout and the heartbeat
interval can be [set for a single group](groups.md#settings-of-a-group). For all other groups, set the broker's setting,
and restart the broker."""


def written() -> str:
    return "\n".join(
        [
            _HEAD,
            "## Broker",
            *_process_rows(BROKER, "broker"),
            "",
            "## Gateway",
            _GATEWAY,
            "",
            *_process_rows(GATEWAY, "gateway"),
            "",
            "## Clients",
            *_client_rows(),
            "",
            "## Topics",
            _TOPICS,
            "",
            *_topic_rows(),
            "",
            "## Groups",
            _GROUPS,
            "",
            *_group_rows(),
            "",
        ]
    )


def with_tables(page: str) -> str:
    """Returns a page with its generated tables up to date."""
    tables = {"broker": _short_rows(BROKER), "gateway": _short_rows(GATEWAY), "topics": _typed_topic_rows()}
    return _BLOCK.sub(lambda found: "\n".join([found[1] + "", *tables[found[2]], "", found[3]]), page)


def outdated() -> dict[Path, str]:
    """Returns the new text of each page that is out of date."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    new = {path: with_tables(text) for path, text in pages.items()} | {PAGE: written()}
    return {path: text for path, text in new.items() if text != pages.get(path)}


def _process_rows(table: SettingsTable[Any], process: str) -> Iterator[str]:
    yield "| setting | flag | environment variable | default | meaning |"
    yield "|---|---|---|---|---|"
    yield f"| – | `--config` | `{table.config_variable}` | – | The TOML file with the settings of the {process}. |"
    for field in table.fields.values():
        yield f"| `{field.name}` | `{field.flag}` | `{field.variable}` | {_default(field)} | {_meaning(field)} |"


def _short_rows(table: SettingsTable[Any]) -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for field in table.fields.values():
        yield f"| `{field.name}` | {_default(field)} | {_meaning(field)} |"


def _default(field: SettingField) -> str:
    return f"`{field.default_text}`" if field.default_text else "–"


def _meaning(field: SettingField) -> str:
    choices = f" One of {', '.join(f'`{each}`' for each in field.choices)}." if field.choices else ""
    return field.help + choices


def _client_rows() -> Iterator[str]:
    yield "| environment variable | default | meaning |"
    yield "|---|---|---|"
    for name in CLIENT_VARIABLES:
        yield f"| `{name}` | {_CLIENTS[name]} |"


def _topic_rows() -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for name, row in TOPICS.items():
        yield f"| `{name}` | {_topic_default(row)} | {row.doc} |"


def _typed_topic_rows() -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, row in TOPICS.items():
        yield f"| `{name}` | {row.kind} | {_topic_default(row)} | {row.doc} |"


def _group_rows() -> Iterator[str]:
    yield "| setting | setting of the broker | default | meaning |"
    yield "|---|---|---|---|"
    for entry in group_settings(GroupSettings(), {}):
        own = entry.name.replace(".", "_")
        yield f"| `{entry.name}` | `{own}` | {_group_default(entry)} | {entry.doc} |"


def _group_default(entry: ConfigEntry) -> str:
    return f"`{format_duration_ms(int(entry.value))}`"


def _topic_default(row: TopicSetting) -> str:
    if row.kind not in (SettingKind.INT, SettingKind.LONG) or row.choices:
        return f"`{row.default}`" if row.default else "–"
    shown = readable_setting(row.name, row.default)
    return f"`{shown}` bytes" if row.name.endswith(".bytes") and shown.isdigit() and shown != "0" else f"`{shown}`"


def main() -> int:
    pages = outdated()
    if sys.argv[1:] == ["--check"]:
        for page in pages:
            print(f"{page.relative_to(ROOT)} is out of date: run scripts/configuration_page.py", file=sys.stderr)
        return 1 if pages else 0
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

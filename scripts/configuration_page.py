"""Generates docs/configuration.md from the settings tables of the broker, the gateway and the topics.

scripts/configuration_page.py           write it
scripts/configuration_page.py --check   fail if the page is out of date
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.gateway.settings import TABLE as GATEWAY
from millstream.model.setting_values import readable_setting
from millstream.node.settings import TABLE as BROKER
from millstream.process.settings import CLIENT_VARIABLES, SettingField, SettingsTable
from millstream.topics.setting_table import TABLE as TOPICS
from millstream.topics.setting_table import SettingKind, TopicSetting

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "configuration.md"


_HEAD = """\
# Configuration

This page lists every setting of the broker, the gateway, the clients and the topics, with its default and its meaning.
`scripts/configuration_page.py` generates it from the settings tables.

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
known one.

## Units
A duration is `500ms`, `30s`, `5m`, `36h`, `7d` or `2w`; a bare number is in milliseconds. A size is `64KiB`, `256MiB`
or `1GiB` (powers of 1024), `500MB` or `1GB` (powers of 1000); a bare number is in bytes. `none` means no limit.
"""

_GATEWAY = """\
`millstream serve` starts a gateway of its own, which uses these settings from the environment. `millstream gateway`
takes them as flags too."""

_CLIENT_MEANINGS: Mapping[str, str] = {
    "MILLSTREAM_BOOTSTRAP": "Bootstrap addresses of the cluster, `host:port`, separated by commas.",
    "MILLSTREAM_CLIENT_CONFIG": "The file with the contexts of the command line.",
    "MILLSTREAM_CONTEXT": "The context to use.",
    "MILLSTREAM_DEBUG": "Any value: errors of the command line show their traceback.",
}

_TOPICS = """\
Set them with `millstream topic create NAME --set …`, `millstream topic alter NAME --set …`, `settings=` in the SDK, or
`settings` in the web API. Kafka's tools set them too, with plain numbers. A topic setting that is not set follows the
broker's default. [Topics](topics.md) explains them."""


def written() -> str:
    return "\n".join(
        [
            _HEAD,
            "## Broker",
            *_process_rows(BROKER),
            "",
            "## Gateway",
            _GATEWAY,
            "",
            *_process_rows(GATEWAY),
            "",
            "## Clients",
            *_client_rows(),
            "",
            "## Topics",
            _TOPICS,
            "",
            *_topic_rows(),
            "",
        ]
    )


def _process_rows(table: SettingsTable[Any]) -> Iterator[str]:
    yield "| setting | flag | environment variable | default | meaning |"
    yield "|---|---|---|---|---|"
    for field in table.fields.values():
        yield f"| `{field.name}` | `{field.flag}` | `{field.variable}` | {_default(field)} | {_meaning(field)} |"


def _default(field: SettingField) -> str:
    return f"`{field.default_text}`" if field.default_text else "–"


def _meaning(field: SettingField) -> str:
    choices = f" One of {', '.join(f'`{each}`' for each in field.choices)}." if field.choices else ""
    return field.help + choices


def _client_rows() -> Iterator[str]:
    yield "| environment variable | meaning |"
    yield "|---|---|"
    for name in CLIENT_VARIABLES:
        yield f"| `{name}` | {_CLIENT_MEANINGS[name]} |"


def _topic_rows() -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for name, row in TOPICS.items():
        default = _topic_default(row)
        yield f"| `{name}` | {f'`{default}`' if default else '–'} | {row.doc} |"


def _topic_default(row: TopicSetting) -> str:
    if row.kind not in (SettingKind.INT, SettingKind.LONG) or row.choices:
        return row.default
    return readable_setting(row.name, row.default)


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written():
            print(f"{PAGE.relative_to(ROOT)} is out of date: run scripts/configuration_page.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(written(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

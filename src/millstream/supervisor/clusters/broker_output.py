"""Copies the log of a broker process to the log of this process, and keeps the last lines to explain its end."""

import json
import logging
import sys
from collections import deque

log = logging.getLogger(__name__)

_LINES_KEPT = 12
_PLAIN_FAILURE = "millstream: "


class BrokerOutput:
    """The log lines of one broker. Each copy has a label of the broker, and stays one JSON object in JSON logs."""

    def __init__(self, cluster: str, node_id: int, log_format: str) -> None:
        self._where = {"cluster": cluster, "broker": node_id}
        self._label = f"[{cluster} {node_id}] "
        self._is_json = log_format == "json"
        self._last_lines: deque[str] = deque(maxlen=_LINES_KEPT)

    def copy(self, line: bytes) -> None:
        """Write a line to standard error."""
        text = line.decode(errors="replace").strip()
        self._last_lines.append(text)
        if not self._is_json:
            labelled = self._label + text
        elif text.startswith("{") and text.endswith("}"):
            labelled = f"{text[:-1]},{json.dumps(self._where)[1:]}"
        else:
            log.warning("broker printed a line", extra={**self._where, "text": text})
            return
        try:
            sys.stderr.write(labelled + "\n")
            sys.stderr.flush()
        except OSError:
            pass  # The broker can serve without a reader of its log.

    def take_failure(self) -> str:
        """Return the reason for the end of the process, or else its last line, and forget all lines."""
        failures = [reason for reason in map(_failure, self._last_lines) if reason]
        last = [*self._last_lines][-1:]
        self._last_lines.clear()
        return "; ".join(failures) or " ".join(last)


def _failure(line: str) -> str:
    """Return the reason in a line of `process.logs.report_failure`, or an empty text."""
    if line.startswith(_PLAIN_FAILURE):
        return line.removeprefix(_PLAIN_FAILURE)
    try:
        row = json.loads(line)
    except ValueError:
        return ""
    is_failure = isinstance(row, dict) and row.get("event") == "process failed"
    return str(row.get("error", "")) if is_failure else ""

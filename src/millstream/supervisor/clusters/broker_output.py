"""Copies the log of a broker process to the log of this process, and keeps the last lines to explain its end."""

import json
import logging
import sys

from millstream.supervisor.last_lines import LastLines

log = logging.getLogger(__name__)


class BrokerOutput:
    """The log lines of one broker. Each copy has a label of the broker, and stays one JSON object in JSON logs."""

    def __init__(self, cluster: str, node_id: int, log_format: str) -> None:
        self._where = {"cluster": cluster, "broker": node_id}
        self._label = f"[{cluster} {node_id}] "
        self._is_json = log_format == "json"
        self._last_lines = LastLines()

    def copy(self, line: bytes) -> None:
        """Write a line to standard error."""
        text = self._last_lines.add(line)
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

    def take_failure(self, code: int | None) -> str:
        """Return the reason for the end of the process (see `LastLines.reason`), and forget all lines."""
        reason = self._last_lines.reason(code)
        self._last_lines.clear()
        return reason

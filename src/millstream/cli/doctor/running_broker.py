"""Examines a running broker over the wire and its operator port."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream import __version__
from millstream.cli.doctor.broker_metrics import Sample, diagnose_metrics, read_samples, unlabelled
from millstream.cli.doctor.diagnosis import Diagnosis
from millstream.cli.doctor.health_advice import advice_for
from millstream.model.errors import ErrorCode, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.session import CommandSession

DRIFT_MS_MAX = 1_000
FILES_MIN = 4_096
FILES_SHARE_MAX = 0.8
MEMORY_SHARE_MAX = 0.8
"""A broker that uses more than this share of a limit is reported before it reaches the limit."""

_PAGE_BYTES_MAX = 64 * 1024 * 1024


class OperatorAnswers(NamedTuple):
    """The responses of the operator port."""

    health: Mapping[str, Any]
    ready: str
    """The reason why the broker is not ready, or an empty text."""
    samples: Sequence[Sample]
    """The metrics."""


def examine_broker(session: "CommandSession", timeout_s: float) -> Iterator[Diagnosis]:
    """Yields what the broker reports. Raises MillstreamError if it cannot be reached."""
    try:
        answer = session.run(session.client.info(timeout_s=timeout_s))
    except MillstreamError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        yield Diagnosis("problem", "version", "a Kafka broker that is not Millstream", "Use the tools of that broker.")
        return
    broker = answer.broker
    versions = f"broker {broker.version}, this tool {__version__}"
    yield Diagnosis("warning" if broker.warning else "ok", "version", versions, broker.warning or "")
    yield clock_diagnosis(answer.drift_ms)
    if broker.features.get("codec") == "plain":
        advice = "Install a C compiler and reinstall Millstream."
        yield Diagnosis("warning", "record codec", "runs as plain Python, which is slower", advice)
    ports = session.run(session.client.service_map([], timeout_s=timeout_s)).of_kind("operator")
    if not ports:
        advice = "Set operator_port to examine health and limits."
        yield Diagnosis("warning", "operator port", "switched off", advice)
    for service in ports:
        base = f"http://{service.host}:{service.port}"
        try:
            answers = ask_operator(base, timeout_s)
        except (OSError, ValueError) as problem:
            advice = "Check the network, or run this command on the broker's machine."
            yield Diagnosis("problem", "operator port", f"{base} cannot be read: {problem}", advice)
            continue
        yield from diagnose_answers(answers)


def clock_diagnosis(drift_ms: int) -> Diagnosis:
    direction = "behind" if drift_ms < 0 else "ahead of"
    text = f"this machine is {direction} the broker by {abs(drift_ms)} ms"
    if abs(drift_ms) <= DRIFT_MS_MAX:
        return Diagnosis("ok", "clock", text)
    return Diagnosis("warning", "clock", text, "Synchronize both clocks (NTP): timestamps decide about retention.")


def ask_operator(base: str, timeout_s: float) -> OperatorAnswers:
    """Reads the pages of an operator port. Raises OSError, or ValueError for unexpected content."""
    _, health = _page(f"{base}/health", timeout_s)
    ready_status, ready = _page(f"{base}/ready", timeout_s)
    _, metrics = _page(f"{base}/metrics", timeout_s)
    document = json.loads(health)
    if not isinstance(document, dict):
        raise ValueError("the health page is not a JSON object")
    return OperatorAnswers(document, "" if ready_status == 200 else ready.strip(), read_samples(metrics))


def diagnose_answers(answers: OperatorAnswers) -> Iterator[Diagnosis]:
    problems, warnings = answers.health.get("problems", []), answers.health.get("warnings", [])
    for text in problems:
        yield Diagnosis("problem", "health", text, advice_for(text))
    for text in warnings:
        yield Diagnosis("warning", "health", text)
    if not problems:
        yield Diagnosis("ok", "health", str(answers.health.get("status", "unknown")))
    if answers.ready and answers.ready.removeprefix("not ready: ") not in problems:
        yield Diagnosis("problem", "readiness", answers.ready, "Wait for the start, or see the log.")
    yield from _limits(unlabelled(answers.samples))
    yield from diagnose_metrics(answers.samples)


def _limits(metrics: Mapping[str, float]) -> Iterator[Diagnosis]:
    used, limit = metrics.get("process_open_fds", 0.0), metrics.get("process_max_fds", 0.0)
    text = f"{used:.0f} of {limit:.0f} file descriptors are open"
    advice = "Raise the limit (LimitNOFILE= in the systemd unit, ulimit -n): connections and logs count."
    if limit and used > FILES_SHARE_MAX * limit:
        yield Diagnosis("problem", "open files", text, advice)
    elif limit and limit < FILES_MIN:
        yield Diagnosis("warning", "open files", f"{text}, a low limit", advice)
    else:
        yield Diagnosis("ok", "open files", text)
    resident, total = metrics.get("process_resident_memory_bytes", 0.0), _machine_memory_bytes()
    text = f"the broker uses {resident / 2**20:.0f} MiB; this machine has {total / 2**20:.0f} MiB"
    if total and resident > MEMORY_SHARE_MAX * total:
        advice = "Lower request_memory_bytes and response_memory_bytes, or add memory."
        yield Diagnosis("warning", "memory", text, advice)
    else:
        yield Diagnosis("ok", "memory", text)


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _page(url: str, timeout_s: float) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # A broker is not reached through a proxy.
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return answer.status, answer.read(_PAGE_BYTES_MAX).decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read(_PAGE_BYTES_MAX).decode()

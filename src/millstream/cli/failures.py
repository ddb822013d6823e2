"""Reports failures of commands: one line with the reason, one line with a hint, and an exit code."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from millstream.cli.main import EXIT_INTERRUPTED
from millstream.cli.output import printable
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.process.exit_codes import EXIT_NOT_INSTALLED

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 5
EXIT_OUTCOME_UNKNOWN = 6
EXIT_DAMAGED = 7
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143
"""The exit code that shells report for a command ended by SIGTERM: 128 + 15."""

_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`millstream topic list` shows the topics and how many partitions they have.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or delete it first with `millstream topic delete`.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "Read with `--from beginning`, or from a later offset.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller messages, or raise `max.message.bytes` with `millstream topic alter`.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Check the broker's log, and the free space of its data directory.",
    ErrorCode.NETWORK_EXCEPTION: "Check that the broker is running and that the network permits the connection.",
    ErrorCode.UNSUPPORTED_VERSION: "Use closer versions of broker and client.",
    ErrorCode.INVALID_CONFIG: "`millstream config describe topic` lists all topic settings and their meaning.",
    ErrorCode.RESOURCE_NOT_FOUND: "`millstream cluster info` shows the brokers.",
    ErrorCode.GROUP_ID_NOT_FOUND: "`millstream group list` shows the groups.",
    ErrorCode.NON_EMPTY_GROUP: "Stop its consumers or wait until they expire; `millstream group describe` shows them.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Its consumers are reading that topic; stop them first.",
    ErrorCode.NO_SUPERVISOR: "Start one with `millstream serve`, or name its first data directory with --data.",
    ErrorCode.CLUSTER_EXISTS: "`millstream cluster list` shows the existing clusters; choose another name.",
    ErrorCode.UNKNOWN_CLUSTER: "`millstream cluster list` shows the existing clusters.",
    ErrorCode.PIPELINE_FAILED: "Add --verbose to see Spark's full traceback.",
    ErrorCode.PARTITION_QUARANTINED: "The broker's log says what is damaged; restore the partition from a backup.",
}
_UNREACHABLE_HINT = (
    "Start a broker with `millstream serve`, or name another with --bootstrap (or MILLSTREAM_BOOTSTRAP)."
)
_UNKNOWN_HINT = "The message may have been stored: read the end of the topic before you send it again."
_DISK_HINT = (
    "Check the broker's log and free disk space, and read the end of the topic before you send the message again."
)


class HintedError(MillstreamError):
    """An error with its own hint, which is shown instead of the hint from the table."""

    def __init__(self, code: ErrorCode, detail: str, hint: str) -> None:
        super().__init__(code, detail)
        self.hint = hint


def usage_error(text: str, hint: str = "") -> MillstreamError:
    """Returns the error for arguments that are invalid or contradict each other."""
    return HintedError(ErrorCode.INVALID_SETTING, text, hint)


@contextmanager
def failures_explained(as_json: bool, *, prints: bool = True) -> Iterator[None]:
    """Ends the command with a message and an exit code, instead of a traceback, if an expected failure occurs inside.

    If `prints` is true and standard output is closed, the command fails before it does anything.
    """
    if prints and sys.stdout is None:
        sys.stderr.write("millstream: standard output is closed; nothing was done\n")
        raise typer.Exit(EXIT_FAILED)
    try:
        yield
        if prints:
            sys.stdout.flush()
    except MillstreamError as error:
        raise typer.Exit(explain(error, as_json)) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        _silence_output()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None
    except OSError as error:
        _silence_output()
        where = "" if error.filename is None else f"{error.filename}: "
        sys.stderr.write(f"millstream: {printable(where + (error.strerror or str(error)))}\n")
        raise typer.Exit(EXIT_FAILED) from None


def _silence_output() -> None:
    """Redirects standard output to /dev/null. Otherwise Python would report the error again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: MillstreamError, as_json: bool) -> int:
    """Prints the error and its hint on standard error. Returns the exit code."""
    hint = _hint(error)
    if as_json:
        sys.stderr.write(json.dumps({"error": error.code.name, "message": error.detail, "hint": hint}) + "\n")
    else:
        detail = "\n".join(map(printable, error.detail.split("\n")))
        sys.stderr.write(f"millstream: {detail}\n" + (f"  {printable(hint)}\n" if hint else ""))
    return _exit_code(error)


def _hint(error: MillstreamError) -> str:
    if isinstance(error, HintedError):
        return error.hint
    if _is_unreachable(error):
        return _UNREACHABLE_HINT
    if _is_outcome_unknown(error):
        return _DISK_HINT if error.code is ErrorCode.KAFKA_STORAGE_ERROR else _UNKNOWN_HINT
    return _HINTS.get(error.code, "")


def _exit_code(error: MillstreamError) -> int:
    if error.code is ErrorCode.INVALID_SETTING:
        return EXIT_USAGE
    if error.code is ErrorCode.NOT_INSTALLED:
        return EXIT_NOT_INSTALLED
    if _is_unreachable(error):
        return EXIT_UNREACHABLE
    return EXIT_OUTCOME_UNKNOWN if _is_outcome_unknown(error) else EXIT_FAILED


def _is_unreachable(error: MillstreamError) -> bool:
    from millstream.sdk.connection.cluster import NoBrokerError  # imported on demand, so that commands start sooner

    return isinstance(error, NoBrokerError)


def _is_outcome_unknown(error: MillstreamError) -> bool:
    from millstream.sdk.producing.failures import OutcomeUnknownError, UnstoredError

    return isinstance(error, OutcomeUnknownError) or (isinstance(error, UnstoredError) and error.in_doubt > 0)

"""How a command ends when it cannot do what it was asked: one line that says why, one that says what to do, a code."""

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
"""By SIGTERM, as a shell tells it of commands that do not catch it."""

_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`millstream topic list` shows the topics and how many partitions they have.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or delete it first with `millstream topic delete`.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "Read with `--from beginning`, or from a later offset.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send less at once, or `millstream topic alter` the topic's `max.message.bytes`.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Look at the broker's log and at the free space of its data directory.",
    ErrorCode.NETWORK_EXCEPTION: "Check that the broker runs and that the network between lets you through.",
    ErrorCode.UNSUPPORTED_VERSION: "Use versions of broker and client that are closer to each other.",
    ErrorCode.INVALID_CONFIG: "`millstream config describe topic` lists all topic settings and what they are for.",
    ErrorCode.RESOURCE_NOT_FOUND: "`millstream cluster info` shows the brokers.",
    ErrorCode.GROUP_ID_NOT_FOUND: "`millstream group list` shows the groups.",
    ErrorCode.NON_EMPTY_GROUP: "Stop its consumers or wait until they expire; `millstream group describe` shows them.",
    ErrorCode.UNKNOWN_MEMBER_ID: "Its consumers run; stop them first. `millstream group describe` shows them.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Its consumers read that topic; stop them first.",
    ErrorCode.NO_SUPERVISOR: "Start one with `millstream serve`, or name its first data directory with --data.",
    ErrorCode.CLUSTER_EXISTS: "`millstream cluster list` shows those there are; choose another name.",
    ErrorCode.UNKNOWN_CLUSTER: "`millstream cluster list` shows those there are.",
    ErrorCode.PIPELINE_FAILED: "With --verbose it shows all that is known about it.",
    ErrorCode.PARTITION_QUARANTINED: "The broker's log says what is damaged; restore that partition from a copy.",
}
_UNREACHABLE_HINT = (
    "Start a broker with `millstream serve`, or name another with --bootstrap (or MILLSTREAM_BOOTSTRAP)."
)
_UNKNOWN_HINT = "It may be stored or not: read the topic's end before you send it again."
_DISK_HINT = "Look at the broker's log and its disk's free space, and read the topic's end before you send it again."


class HintedError(MillstreamError):
    """A failure that knows better what to do about it than the table of hints."""

    def __init__(self, code: ErrorCode, detail: str, hint: str) -> None:
        super().__init__(code, detail)
        self.hint = hint


def usage_error(text: str, hint: str = "") -> MillstreamError:
    """What was asked for contradicts itself or cannot be read."""
    return HintedError(ErrorCode.INVALID_SETTING, text, hint)


@contextmanager
def failures_explained(as_json: bool, *, prints: bool = True) -> Iterator[None]:
    """End the command with an exit code instead of a traceback, whatever goes wrong inside in a foreseeable way.

    A command that `prints` what it did is refused before it does anything when it has no output.
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
    """Python would complain once more when it flushes at exit, so it gets another output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: MillstreamError, as_json: bool) -> int:
    """Say on standard error what is wrong and what to do; which exit code that means."""
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
    from millstream.sdk.connection.cluster import (
        UnreachableError,  # Errors are rare; a command that meets none starts sooner.
    )

    return isinstance(error, UnreachableError)


def _is_outcome_unknown(error: MillstreamError) -> bool:
    from millstream.sdk.producing.failures import OutcomeUnknownError, UnstoredError

    return isinstance(error, OutcomeUnknownError) or (isinstance(error, UnstoredError) and error.in_doubt > 0)

"""Extracts the cause of a failure from Spark's messages, which are mostly about Spark.

A failure in Python, in a worker or in Millstream's source or sink, arrives as a Python traceback inside a Java one. Its
cause is the last line of the Python traceback. The cause of a failure in Java is its first line. If the user's own file
is in a traceback, the message contains its line number.
"""

import re
import traceback
from pathlib import Path

from millstream.model.errors import ErrorCode, MillstreamError

_TRACEBACK = "Traceback (most recent call last):"
_JAVA_TRACE = re.compile(r"\n\s+at [\w.$/]+\(|\n=== Streaming Query ===|\n\s*== (?:SQL|DataFrame)\b")
_PLAN = re.compile(r";?\n(?:'?[A-Z]\w+[ (\[]|[+:]- ).*", re.DOTALL)
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\.?")
_PLACE = re.compile(r"[.;]* ?[;(]? ?line (\d+),? pos \d+[);]*$")
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ")
_CONDITION = re.compile(r"^\[[A-Z_.]+\] ")
_STREAM = re.compile(r"^Query (?:\S+ )?\[id = [^\]]*\] terminated with exception: ")
_FILE = re.compile(r"^\w+Error: \[Errno \d+\] ([^:]+): '(.+)'$")
_OURS = re.compile(r"^(?:[\w]+\.)*\w*Error: ([A-Z_]+): (.*)", re.DOTALL)


class PipelineError(MillstreamError):
    """A pipeline failed. `trace` is the complete text from Spark or Python."""

    def __init__(self, code: ErrorCode, detail: str, trace: str = "") -> None:
        super().__init__(code, detail)
        self.trace = trace


def pipeline_error(error: BaseException, where: str, file: Path) -> PipelineError:
    """Converts an exception of a pipeline's file. `where` names the file; the line number is appended."""
    trace = "".join(traceback.format_exception(error))
    line = _line_of(error, file)
    place = where if line is None else f"{where}, line {line}"
    if isinstance(error, MillstreamError):
        return PipelineError(error.code, f"{place}: {error.detail}", trace)
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return told(str(error), place, file, trace)
    return PipelineError(ErrorCode.PIPELINE_FAILED, f"{place}: {_named(error)}", trace)


def told(message: str, where: str, file: Path, trace: str = "") -> PipelineError:
    """Converts the text of a failure that Spark reported to an error."""
    code, text = _cause(message)
    text = text.removesuffix(f" ({where.rpartition(', ')[2]})")
    own = re.findall(rf'File "{re.escape(str(file))}", line (\d+)', message)
    if own and ", line" not in where:
        where = f"{where} ({file.name}, line {own[-1]})"
    return PipelineError(code, f"{where}: {text}", trace or message)


def _cause(message: str) -> tuple[ErrorCode, str]:
    """Returns the error code and the cause that Spark's text contains."""
    if _TRACEBACK in message:
        text = _last_of_traceback(message.rpartition(_TRACEBACK)[2])
        ours = _OURS.match(text)
        if ours is not None and ours[1] in ErrorCode.__members__:
            return ErrorCode[ours[1]], ours[2]
        return ErrorCode.PIPELINE_FAILED, _FILE.sub(r"\2: \1", text)
    text = message.rpartition("\n: ")[2] if message.startswith("An error occurred while calling") else message
    text = _JAVA_TRACE.split(text.strip(), maxsplit=1)[0]
    text = _PLACE.sub(r" (line \1)", _SQL_STATE.sub("", _PLAN.sub("", text)))
    for part in (_CLASS, _CONDITION, _STREAM, _CONDITION):
        text = part.sub("", text)
    return ErrorCode.PIPELINE_FAILED, text.strip()


def _last_of_traceback(frames: str) -> str:
    """Returns the text after the frames, up to the Java stack trace."""
    lines = frames.strip("\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), 0)
    text = _JAVA_TRACE.split("\n".join(lines[first:]), maxsplit=1)[0]
    return _SQL_STATE.sub("", text).strip()


def _line_of(error: BaseException, file: Path) -> int | None:
    """Returns the line of the user's file that raised the exception, or None."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None


def _named(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg}: {error.text.strip()}" if error.text else error.msg
    return f"{type(error).__name__}: {error}".removesuffix(": ")

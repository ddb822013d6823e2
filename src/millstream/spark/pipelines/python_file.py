"""Runs a pipeline that is a Python file, as the main program and with `spark` and `bootstrap` defined."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from millstream.spark.pipelines.failures import PipelineError, pipeline_error

_PATH_VARIABLE = "PYTHONPATH"


def compiled(file: Path) -> CodeType:
    """Compiles the file. Raises PipelineError with the line for invalid Python."""
    try:
        return compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise pipeline_error(error, file.name, file) from None


def offer_modules(file: Path) -> None:
    """Lets the file, and Spark's workers on this machine, import modules beside it. Call it before Spark starts."""
    beside = str(file.resolve().parent)
    sys.path.insert(0, beside)
    os.environ[_PATH_VARIABLE] = os.pathsep.join([beside, *filter(None, [os.environ.get(_PATH_VARIABLE)])])


def run_python(file: Path, code: CodeType, arguments: Sequence[str], names: Mapping[str, Any]) -> None:
    """Runs the file to its end. Raises PipelineError for every exception, and for an exit with an error code."""
    main = ModuleType("__main__")
    main.__dict__.update(names, __file__=str(file))
    before = sys.argv, sys.modules["__main__"]
    sys.argv, sys.modules["__main__"] = [str(file), *arguments], main  # Where Spark looks for the file's functions.
    try:
        exec(code, main.__dict__)
    except SystemExit as error:
        if error.code:
            raise pipeline_error(error, file.name, file) from None
    except PipelineError:
        raise
    except Exception as error:
        raise pipeline_error(error, file.name, file) from error
    finally:
        sys.argv, sys.modules["__main__"] = before

"""Runs the `millstream` command and ends the process with its exit code.

`serve` and `gateway` with plain flags start without loading Typer and the other commands. Loading them would take a
fifth of the time until a broker is ready.
"""

import gc
import os
import sys

PROGRAM = "millstream"
COMPLETE_VARIABLE = "_MILLSTREAM_COMPLETE"
DEBUG_VARIABLE = "MILLSTREAM_DEBUG"

EXIT_BUG = 70
EXIT_INTERRUPTED = 130


def main() -> None:
    """Runs the command line and ends the process."""
    _fill_closed_streams()
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        sys.exit(_report_bug(error))


def _run(arguments: list[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        from millstream.cli.commands.completion import prepare

        prepare()
    elif arguments[:1] == ["serve"]:
        gc.disable()  # Imported modules are never freed. The broker enables collection again when it runs.
        from millstream.cli.commands.serve import plain_settings, run

        settings = plain_settings(arguments[1:])
        if settings is not None:
            return run(settings)
    elif arguments[:1] == ["gateway"]:
        from millstream.cli.commands import gateway

        gateway_settings = gateway.plain_settings(arguments[1:])
        if gateway_settings is not None:
            return gateway.run(gateway_settings)
    from millstream.cli.app import app

    app(prog_name=PROGRAM)
    return 0


def _fill_closed_streams() -> None:
    """Opens /dev/null for closed standard streams, so that no file or connection gets one of their descriptors."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _report_bug(error: Exception) -> int:
    """Reports an unexpected exception in one line. Adds the traceback for `serve`, `gateway` and MILLSTREAM_DEBUG."""
    import traceback

    from millstream.cli.output import printable
    from millstream.process import logs

    if logs.are_json():
        logs.report_failure(f"this is a bug: {type(error).__name__}: {error}", error)
        return EXIT_BUG
    if os.environ.get(DEBUG_VARIABLE) or sys.argv[1:2] in (["serve"], ["gateway"]):
        traceback.print_exception(error)
    sys.stderr.write(f"millstream: this is a bug: {type(error).__name__}: {printable(str(error))}\n")
    sys.stderr.write(f"  Please report it with the traceback, which {DEBUG_VARIABLE}=1 in the environment shows.\n")
    return EXIT_BUG

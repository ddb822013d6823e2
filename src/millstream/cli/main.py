"""The `millstream` command: where every run of it begins and ends.

A broker that is to be started plainly is started without loading the other commands and what they are made with, which
would be a fifth of the time until it is ready.
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
    """Run the command line; ends the process."""
    _fill_closed_streams()
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        sys.exit(_tell_bug(error))


def _run(arguments: list[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        from millstream.cli.commands.completion import prepare

        prepare()
    elif arguments[:1] == ["serve"]:
        gc.disable()  # What is imported stays; the broker goes on collecting when it runs.
        from millstream.cli.commands.serve import plain_settings, run

        settings = plain_settings(arguments[1:])
        if settings is not None:
            return run(settings)
    elif arguments[:1] == ["gateway"]:
        from millstream.cli.commands import gateway

        told = gateway.plain_settings(arguments[1:])
        if told is not None:
            return gateway.run(told)
    from millstream.cli.app import app

    app(prog_name=PROGRAM)
    return 0


def _fill_closed_streams() -> None:
    """Let no file or connection get the number of a standard stream that is closed, and be written to by mistake."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _tell_bug(error: Exception) -> int:
    """What nobody foresaw, in one line; with its traceback where that was asked for, and from what serves always."""
    import traceback

    from millstream.cli.output import printable

    if os.environ.get(DEBUG_VARIABLE) or sys.argv[1:2] in (["serve"], ["gateway"]):
        traceback.print_exception(error)
    sys.stderr.write(f"millstream: this is a bug: {type(error).__name__}: {printable(str(error))}\n")
    sys.stderr.write(f"  With {DEBUG_VARIABLE}=1 in the environment it shows where; please report it with that.\n")
    return EXIT_BUG

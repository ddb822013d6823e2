"""Defines the exit codes of Millstream's processes."""

from millstream.model.errors import ErrorCode, MillstreamError

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_DATA_IN_USE = 3
EXIT_ADDRESS = 4
EXIT_NOT_INSTALLED = 8
EXIT_BY_SECOND_SIGNAL = 130

_CODES = {
    ErrorCode.INVALID_SETTING: EXIT_SETTINGS,
    ErrorCode.DATA_DIRECTORY_IN_USE: EXIT_DATA_IN_USE,
    ErrorCode.ADDRESS_UNAVAILABLE: EXIT_ADDRESS,
}


def exit_code(problem: MillstreamError) -> int:
    return _CODES.get(problem.code, EXIT_FAILED)

"""The machine that this process runs on."""

from functools import cache

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@cache
def machine_id() -> str:
    """Names the machine and the time since it was started, alike for all its processes, in containers too.

    "" where that is not known.
    """
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""

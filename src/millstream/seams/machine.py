"""Identifies the machine that this process runs on."""

from functools import cache

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@cache
def machine_id() -> str:
    """The id of the machine's current boot. It is the same in all processes, also in containers; "" if unknown."""
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return ""

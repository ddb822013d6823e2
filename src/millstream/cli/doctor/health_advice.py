"""Gives advice for each kind of problem on the health page of a broker."""

import re
from collections.abc import Sequence

_KINDS: Sequence[tuple[str, str]] = (
    (
        r"is quarantined",
        "Restore the partition: docs/serve.md has the steps (a quarantined partition). Other partitions are served.",
    ),
    (
        r"(write or flush failed|a write failed in the last)",
        "Check free space and health of the disk (df, dmesg); the log line `write failed` has the cause. The broker"
        " repairs the partition itself once the disk works.",
    ),
    (r"state is being rebuilt from the log", "Wait: the partition accepts writes when its log has been read."),
    (
        r"truncated at this start",
        "Compare the .cut files beside the log with the source of the data, and write missing messages again.",
    ),
    (r"rebuilding (its|their) message ids", "Wait: until then a repeated message id may be stored a second time."),
    (r"data directory .* is (full|low on space)", "Delete topics, shorten retention or add space to this volume."),
    (
        r"has not answered since",
        "Look at the process with `ps` and `py-spy dump`. After `kill -CONT` a stopped one continues; after"
        " `kill -KILL` the supervisor starts it again.",
    ),
    (
        r"is not reachable at",
        "Check that the brokers at this address run, and that the network and `bootstrap` or `cluster` are right.",
    ),
    (
        r"(Address already in use|cannot listen on)",
        "Stop the process that uses the port (`ss -ltnp` names it), or set another port.",
    ),
    (r"was ended by SIGKILL", "Look for the kernel's out-of-memory killer (dmesg), and give the machine more memory."),
    (
        r"exited with code 2 ",
        "Correct the settings that the message names; `millstream serve --check` and `millstream gateway --check` check"
        " them. Then restart the broker.",
    ),
    (r"(exited with code|was ended by|cannot be started)", "The log has the lines of this process before its end."),
    (r"is starting", "Wait a few seconds. If it does not end, the log of this process has the reason."),
    (
        r"(cannot be managed|cannot be read)",
        "Check owner, rights and free space of the first data directory, then restart the broker.",
    ),
    (
        r"reconnect",
        "The log names the client and why its connections end; compare its settings with the broker's.",
    ),
)
_OTHERWISE = "docs/serve.md describes each problem; the log has its time."


def advice_for(problem: str) -> str:
    """Returns what to do about a problem of the health page."""
    return next((advice for pattern, advice in _KINDS if re.search(pattern, problem)), _OTHERWISE)

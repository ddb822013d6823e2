"""Tests that freed buffers stay with the process, so that the kernel need not clear their pages again."""

import subprocess
import sys

PAGE_BYTES = 4096
BUFFER_BYTES = 1024 * 1024
ROUNDS = 200

PROGRAM = f"""
import resource
from millstream.node.allocator import keep_freed_memory
keep_freed_memory()
bytearray({BUFFER_BYTES})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    bytearray({BUFFER_BYTES})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_freed_buffer_is_reused_without_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < ROUNDS * BUFFER_BYTES // PAGE_BYTES // 10

"""Maps a key to a partition of an internal topic with Kafka's hash function, so that Kafka's tools find the
partition."""

from functools import lru_cache


@lru_cache(maxsize=10_000)
def partition_of(key: str, partitions: int) -> int:
    """Returns the partition of an internal topic that holds the state of `key`."""
    return _java_hash(key) % partitions


def _java_hash(text: str) -> int:
    """Returns the result of Java's `Math.abs(text.hashCode())`; 0 for -2**31, which has no positive 32-bit value."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFF_FFFF
    if value == 0x8000_0000:
        return 0
    return value if value < 0x8000_0000 else 0x1_0000_0000 - value

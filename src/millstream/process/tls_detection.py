"""Recognizes TLS clients on plaintext ports, so that the log names the cause instead of a malformed request."""

EVENT = "a TLS client connected to a plaintext port"
ADVICE = "this port has no TLS; configure the client for plaintext (Kafka clients: security.protocol=PLAINTEXT)"
HEAD_BYTES = 3

_HANDSHAKE = 0x16
_MAJOR_VERSION = 3


def is_tls_handshake(head: bytes | bytearray | memoryview) -> bool:
    """True if a connection begins with a TLS handshake record, as every TLS client sends one first."""
    return len(head) >= HEAD_BYTES and head[0] == _HANDSHAKE and head[1] == _MAJOR_VERSION and head[2] <= 4

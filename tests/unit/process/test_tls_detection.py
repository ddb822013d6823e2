"""Tests that the first bytes of real TLS clients are recognized, and those of other clients are not."""

import ssl

import pytest

from millstream.process.tls_detection import is_tls_handshake


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_hello_is_recognized_from_its_first_bytes(newest: ssl.TLSVersion) -> None:
    context = ssl.create_default_context()
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    assert is_tls_handshake(hello)
    assert is_tls_handshake(memoryview(hello)[:4])


@pytest.mark.parametrize("head", [b"", b"\x16\x03", b"GET / HTTP/1.1", b"\x00\x00\x00\x2a\x00\x12", b"\x16\x04\x01"])
def test_other_bytes_are_not_taken_for_tls(head: bytes) -> None:
    assert not is_tls_handshake(head)

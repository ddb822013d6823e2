"""Sends raw HTTP over plain sockets, for requests that no HTTP client would send."""

import socket

WAIT_S = 30.0


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), WAIT_S)
    connection.settimeout(WAIT_S)
    return connection


def everything(connection: socket.socket) -> bytes:
    """Return all received bytes until the connection ends."""
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def answered(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status and the body of one response."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = connection.recv(65536)
        assert piece, said
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body


def post(body: bytes, path: str = "/events") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)

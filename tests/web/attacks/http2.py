"""A request over HTTP/2 with repeated headers that take a byte each on the wire."""

from __future__ import annotations

import socket

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RemoteSettingsChanged, ResponseReceived


def ask(address: tuple[str, int], path: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Returns: the status, and the bytes of the request."""
    config = H2Configuration(header_encoding=None, normalize_outbound_headers=False, validate_outbound_headers=False)
    connection = H2Connection(config)
    with socket.create_connection(address, timeout=20) as client:

        def exchange() -> list[Event]:
            client.sendall(connection.data_to_send())
            return connection.receive_data(client.recv(65_536))

        connection.initiate_connection()
        while not any(isinstance(event, RemoteSettingsChanged) for event in exchange()):
            pass
        client.sendall(connection.data_to_send())
        target = [(b":method", b"GET"), (b":path", path.encode()), (b":authority", b"x"), (b":scheme", b"http")]
        connection.send_headers(connection.get_next_available_stream_id(), target + headers, end_stream=True)
        sent = connection.data_to_send()
        client.sendall(sent)
        while True:
            for event in exchange():
                if isinstance(event, ResponseReceived):
                    assert event.headers is not None
                    return int(dict(event.headers)[b":status"]), len(sent)

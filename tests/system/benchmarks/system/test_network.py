"""benchmarks.system.probes: the sockets of a process, as the kernel counts them."""

import os
import socket

from benchmarks.system import probes


def test_own_sockets_of_tcp_are_counted() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        socket.socket(socket.AF_UNIX) as other,
    ):
        client.sendall(b"bytes")
        names = [os.readlink(f"/proc/self/fd/{s.fileno()}") for s in (client, other)]

        seconds = probes.sending_seconds()

    assert seconds[names[0]] >= 0.0
    assert names[1] not in seconds

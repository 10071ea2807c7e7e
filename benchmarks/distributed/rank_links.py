"""TCP connections from every rank to rank 0, independent of Horovod.

In: the ranks. Out: `Links`: on rank 0 to the other ranks, on the other ranks to rank 0.
A link carries lines of JSON and never blocks. Horovod only tells the other ranks the
addresses of rank 0.
"""

import contextlib
import itertools
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import psutil

from benchmarks.distributed.ranks import Ranks

Message = dict[str, Any]

_ADDRESS_SECONDS = 3.0  # time for an address of rank 0 to answer
_CONNECT_SECONDS = 30.0  # time for all ranks to connect
# A host that acknowledges nothing for this time is out of reach: tcp(7). Gloo gives up
# after 30 s, without the name of the rank.
_UNREACHABLE_MILLISECONDS = 20_000


class _Offer(NamedTuple):
    """Addresses and port of rank 0; every run has another token."""

    addresses: list[str]
    port: int
    token: str


class Links:
    """All links of a rank, by rank.

    `unreachable` are the ranks whose links broke as their hosts were out of reach.
    """

    def __init__(self, sockets: Mapping[int, socket.socket]) -> None:
        self.unreachable: set[int] = set()
        self._sockets = dict(sockets)
        self._selector = selectors.DefaultSelector()
        self._received, self._unsent = (dict.fromkeys(sockets, b"") for _ in range(2))
        for rank, sock in sockets.items():
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, rank)

    def receive(self, seconds: float) -> list[tuple[int, list[Message] | None]]:
        """Waits for messages; returns (rank, messages) for each rank with messages.

        The messages of a rank that has closed its connection are None, once.
        """
        events = self._selector.select(seconds)
        return [(key.data, self._receive(key.data)) for key, _ in events]

    def _receive(self, rank: int) -> list[Message] | None:
        sock = self._sockets[rank]
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            data = b""
            if not isinstance(error, ConnectionError):
                self.unreachable.add(rank)
        if not data:
            self._selector.unregister(sock)
            self._sockets.pop(rank).close()
            return None
        *lines, self._received[rank] = (self._received[rank] + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: Message) -> None:
        """Sends a message; drops the message while an earlier message is not sent."""
        for rank, sock in self._sockets.items():
            left = self._unsent[rank] or json.dumps(message).encode() + b"\n"
            # An error is ignored here: `receive` reports a broken connection.
            with contextlib.suppress(OSError):
                left = left[sock.send(left) :]
            self._unsent[rank] = left

    def close(self, seconds: float) -> None:
        """Closes the links after the other ends have closed, or after a time."""
        for sock in self._sockets.values():
            # To close at once may discard data before the other end reads: tcp(7).
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(seconds)
                while sock.recv(1 << 16):
                    pass
            sock.close()
        self._selector.close()


def connect(ranks: Ranks) -> tuple[Links, list[str]]:
    """Connects every rank with rank 0, and returns the host names of all ranks too.

    All ranks call the function together. If a rank cannot connect to rank 0, every rank
    raises an OSError.
    """
    sockets: dict[int, socket.socket] = {}
    if ranks.is_first:
        with socket.create_server(("", 0), backlog=ranks.num_ranks) as server:
            token, port = secrets.token_hex(16), server.getsockname()[1]
            offer = _Offer(_addresses(), port, token)
            # A thread accepts, because the main thread hears which rank has given up.
            thread = threading.Thread(
                target=_accept, args=(server, token, ranks, sockets), daemon=True
            )
            thread.start()
            ranks.gather(offer)
            hosts = _agree(ranks, offer, True)
            thread.join()
    else:
        offer = ranks.gather(None)[0]
        if (sock := _reach(offer, ranks.rank)) is not None:
            sockets[0] = sock
        hosts = _agree(ranks, offer, bool(sockets))
    for sock in sockets.values():
        option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        sock.setsockopt(*option, _UNREACHABLE_MILLISECONDS)
    return Links(sockets), hosts


def _agree(ranks: Ranks, offer: _Offer, is_connected: bool) -> list[str]:
    """Returns the host name of every rank, or raises if a rank is not connected."""
    everyone = ranks.gather((is_connected, socket.gethostname()))
    lost = [str(rank) for rank, (connected, _) in enumerate(everyone) if not connected]
    if lost:
        raise OSError(
            f"Every rank must reach rank 0 on one of {', '.join(offer.addresses)}, "
            f"port {offer.port}; rank {', '.join(lost)} did not. Open the ports "
            "between the hosts, as for Horovod."
        )
    return [host for _, host in everyone]


def _accept(
    server: socket.socket, token: str, ranks: Ranks, sockets: dict[int, socket.socket]
) -> None:
    """Adds the connections of the other ranks that come in time to `sockets`."""
    end = time.monotonic() + _CONNECT_SECONDS
    server.settimeout(1.0)
    while len(sockets) < ranks.num_ranks - 1 and time.monotonic() < end:
        try:
            sock, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:  # the main thread closed the server: a rank cannot connect
            return
        if (rank := _greeting(sock, token)) is None:
            sock.close()  # not a rank of the run
        else:
            sockets[rank] = sock


def _greeting(sock: socket.socket, token: str) -> int | None:
    """Reads the first message and returns the rank; None for another run."""
    sock.settimeout(_ADDRESS_SECONDS)
    try:
        received, _, rank = sock.recv(256).decode().partition(" ")
        if received != token:
            return None
        sock.sendall(token.encode())
        return int(rank)
    except (OSError, ValueError):
        return None


def _reach(offer: _Offer, rank: int) -> socket.socket | None:
    """Connects to rank 0 on the first address that answers; None without answers."""
    for address in offer.addresses:
        with contextlib.suppress(OSError):
            sock = socket.create_connection((address, offer.port), _ADDRESS_SECONDS)
            # A single `recv` gets the whole message, far shorter than a packet.
            sock.sendall(f"{offer.token} {rank}".encode())
            if sock.recv(256).decode() == offer.token:
                return sock
            sock.close()
    return None


def _addresses() -> list[str]:
    """Returns names and IPv4 addresses of the host; loopback addresses come last."""
    names = [os.environ.get("HOROVOD_HOSTNAME", ""), socket.gethostname()]
    every = itertools.chain(*psutil.net_if_addrs().values())
    addresses = [each.address for each in every if each.family == socket.AF_INET]
    addresses.sort(key=lambda address: address.startswith("127."))
    return list(dict.fromkeys([name for name in names if name] + addresses))

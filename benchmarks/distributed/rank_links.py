"""TCP connections from every rank to rank 0, independent of Horovod.

In: the ranks. Out: `Links`: on rank 0 to the other ranks, on the other ranks to rank 0.
A link carries lines of JSON and never blocks. Horovod only tells the other ranks the
addresses of rank 0.
"""

import contextlib
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable
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


class Link:
    """A connection to a rank.

    Attributes:
        is_reachable: False after the host of the rank could not be reached.
    """

    def __init__(self, sock: socket.socket, rank: int) -> None:
        sock.setblocking(False)
        self.rank = rank
        self.socket = sock
        self.is_reachable = True
        self._received = b""
        self._unsent = b""

    def send(self, message: Message) -> None:
        """Sends a message; drops the message while an earlier message is not sent."""
        if not self._unsent:
            self._unsent = json.dumps(message).encode() + b"\n"
        # An error is ignored here: `receive` reports a broken connection.
        with contextlib.suppress(OSError):
            self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def receive(self) -> list[Message] | None:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            self.is_reachable = isinstance(error, ConnectionError)
            return None
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self, seconds: float) -> None:
        """Closes the connection after the other end has closed, or after a time."""
        # To close at once may discard data before the other end reads: tcp(7).
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(seconds)
            while self.socket.recv(1 << 16):
                pass
        self.socket.close()


class Links:
    """All links of a rank.

    Attributes:
        unreachable: The ranks whose links broke because their hosts were out of reach.
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self.unreachable: set[int] = set()
        self._selector = selectors.DefaultSelector()
        for link in links:
            self._selector.register(link.socket, selectors.EVENT_READ, link)

    def receive(self, seconds: float) -> list[tuple[int, list[Message] | None]]:
        """Waits until messages arrive, and returns them.

        Returns:
            (rank, messages) for each rank with messages. The messages of a rank that
            has closed its connection are None, once.
        """
        received = []
        for key, _ in self._selector.select(seconds):
            messages = key.data.receive()
            received.append((key.data.rank, messages))
            if messages is None:
                if not key.data.is_reachable:
                    self.unreachable.add(key.data.rank)
                self._selector.unregister(key.fileobj)
                key.data.socket.close()
        return received

    def send(self, message: Message) -> None:
        for key in self._selector.get_map().values():
            key.data.send(message)

    def close(self, seconds: float) -> None:
        """Closes the links after the other ends have closed, or after a time."""
        for key in self._selector.get_map().values():
            key.data.close(seconds)
        self._selector.close()


def connect(ranks: Ranks) -> tuple[Links, list[str]]:
    """Connects every rank with rank 0; all ranks call the function together.

    Returns:
        The links of the rank, and the host names of all ranks.

    Raises:
        OSError: On every rank, if any rank cannot connect to rank 0.
    """
    if ranks.is_first:
        with socket.create_server(("", 0), backlog=ranks.num_ranks) as server:
            return _accept(server, ranks)
    offer = ranks.gather(None)[0]
    link = _reach(offer, ranks.rank)
    hosts = _agree(ranks, offer, link is not None)
    return Links([link] if link else []), hosts


def _accept(server: socket.socket, ranks: Ranks) -> tuple[Links, list[str]]:
    offer = _Offer(_addresses(), server.getsockname()[1], secrets.token_hex(16))
    links: list[Link] = []
    # A thread accepts, because the main thread waits for the reports of all ranks.
    thread = threading.Thread(
        target=_accept_others, args=(server, offer.token, ranks, links), daemon=True
    )
    thread.start()
    ranks.gather(offer)
    hosts = _agree(ranks, offer, True)
    thread.join()
    return Links(links), hosts


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


def _accept_others(
    server: socket.socket, token: str, ranks: Ranks, links: list[Link]
) -> None:
    end = time.monotonic() + _CONNECT_SECONDS
    server.settimeout(1.0)
    while len(links) < ranks.num_ranks - 1 and time.monotonic() < end:
        try:
            sock, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:  # the main thread closed the server: a rank cannot connect
            return
        if (rank := _greeting(sock, token)) is None:
            sock.close()  # not a rank of the run
        else:
            links.append(_tcp_link(sock, rank))


def _tcp_link(sock: socket.socket, rank: int) -> Link:
    option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    sock.setsockopt(*option, _UNREACHABLE_MILLISECONDS)
    return Link(sock, rank)


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


def _reach(offer: _Offer, rank: int) -> Link | None:
    """Connects to rank 0 on the first address that answers; None without answers."""
    for address in offer.addresses:
        with contextlib.suppress(OSError):
            sock = socket.create_connection((address, offer.port), _ADDRESS_SECONDS)
            # A single `recv` gets the whole message, far shorter than a packet.
            sock.sendall(f"{offer.token} {rank}".encode())
            if sock.recv(256).decode() == offer.token:
                return _tcp_link(sock, 0)
            sock.close()
    return None


def _addresses() -> list[str]:
    """Returns names and IPv4 addresses of the host; loopback addresses come last."""
    names = [os.environ.get("HOROVOD_HOSTNAME", ""), socket.gethostname()]
    interfaces = psutil.net_if_addrs().values()
    addresses = [
        each.address
        for own in interfaces
        for each in own
        if each.family == socket.AF_INET
    ]
    addresses.sort(key=lambda address: address.startswith("127."))
    return list(dict.fromkeys([name for name in names if name] + addresses))

"""Network of the host: bytes received and sent by its interfaces and RDMA ports.

In: /sys/class/net, /sys/class/infiniband, and the sockets of this process. Out:
counters, and the speed of the link. Interfaces and ports belong to a `machine.Host`:
another network namespace has others.
"""

import contextlib
import os
import pathlib
import socket
import struct
from collections.abc import Mapping, Sequence

import psutil

_INTERFACES = pathlib.Path("/sys/class/net")
_RDMA_DEVICES = pathlib.Path("/sys/class/infiniband")
_RDMA_WORD = 4  # bytes: port_rcv_data and port_xmit_data count words
_OWN_FILES = pathlib.Path("/proc/self/fd")
_TIMES, _TIMES_OFFSET = struct.Struct("=2Q"), 168  # microseconds, in struct tcp_info
_RDMA_COUNTERS = {"received": "port_rcv_data", "sent": "port_xmit_data"}


def interfaces() -> list[str]:
    """Returns the interfaces to other hosts, without counting bytes twice.

    Bonds, bridges and VLANs lie over the devices and would count the same bytes again.
    A container may see no device, only virtual interfaces.
    """
    names = sorted(path.name for path in _INTERFACES.iterdir() if path.name != "lo")
    return [n for n in names if (_INTERFACES / n / "device").exists()] or names


def transferred(names: Sequence[str]) -> dict[str, int]:
    """Returns the bytes received and sent by the interfaces since their start."""
    counted = psutil.net_io_counters(pernic=True)
    present = [counted[name] for name in names if name in counted]
    return {
        "network_received_bytes": sum(interface.bytes_recv for interface in present),
        "network_sent_bytes": sum(interface.bytes_sent for interface in present),
    }


def received_bytes() -> int:
    """Returns the bytes that all interfaces and RDMA ports received since their start.

    The loopback counts: the server of a mount may run on this host.

    Raises:
        AttributeError: If the host has no interface.
    """
    rdma = rdma_transferred(rdma_ports())["rdma_received_bytes"]
    return int(psutil.net_io_counters(nowrap=False).bytes_recv) + rdma


def bytes_per_second(names: Sequence[str]) -> float | None:
    """Returns the speed of the interfaces together, each way; None if unknown.

    A virtual interface may tell no speed; a link that is down has none.
    """
    stats = psutil.net_if_stats()
    megabits = [stats[name].speed if name in stats else 0 for name in names]
    return sum(megabits) * 1e6 / 8 if megabits and all(megabits) else None


def rdma_ports() -> list[pathlib.Path]:
    """Returns the folders of the counters of all RDMA ports; empty without any.

    The interfaces count no bytes of RDMA.
    """
    return sorted(_RDMA_DEVICES.glob("*/ports/*/counters"))


def rdma_transferred(ports: Sequence[pathlib.Path]) -> Mapping[str, int]:
    """Returns the bytes received and sent by RDMA ports since their start."""
    return {
        f"rdma_{way}_bytes": sum(
            int((port / name).read_text()) * _RDMA_WORD for port in ports
        )
        for way, name in _RDMA_COUNTERS.items()
    }


def sending_seconds() -> dict[str, float]:
    """Returns the seconds in which bytes of this process were on their way, by socket.

    The bytes were sent and not yet acknowledged. The time in which the receiver had no
    room does not count, because then the receiver is slow, and not the network. Source:
    tcpi_busy_time and tcpi_rwnd_limited of struct tcp_info, linux/tcp.h.
    """
    seconds = {}
    for name in os.listdir(_OWN_FILES):
        with contextlib.suppress(OSError):  # no socket of TCP, or closed meanwhile
            link = os.readlink(_OWN_FILES / name)
            if not link.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as own:
                info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
            if len(info) < _TIMES_OFFSET + _TIMES.size:
                raise ValueError(
                    "the kernel does not say how long bytes are on their way"
                )
            busy, no_room = _TIMES.unpack_from(info, _TIMES_OFFSET)
            seconds[link] = (busy - no_room) / 1e6
    return seconds

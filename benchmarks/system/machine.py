"""Machines share memory, hosts share a network: the identities of both.

In: /proc. Out: identities that are equal for processes on the same machine or host,
whatever the names of the hosts are.

    Machine  a boot id: the page cache, the memory, the cores and the GPUs
    Host     a machine and a network namespace: the addresses, the link, the launch

Two machines may have one name, and a machine has several hosts where containers or
namespaces have networks of their own.
"""

import dataclasses
import os
import platform

import tfpipe

_NETWORK_NAMESPACE = "/proc/self/ns/net"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A running kernel; `boot_id`, new at every start, may be the machine's name."""

    boot_id: str
    name: str = dataclasses.field(default="", compare=False)

    @classmethod
    def here(cls) -> "Machine":
        name = platform.node()
        return cls(tfpipe.host.boot_id() or name, name)

    def __str__(self) -> str:
        return self.name or self.boot_id


@dataclasses.dataclass(frozen=True)
class Host:
    """A network namespace of a machine; `network` is 0 if the kernel does not tell."""

    machine: Machine
    network: int = 0

    @classmethod
    def here(cls) -> "Host":
        try:
            network = os.stat(_NETWORK_NAMESPACE).st_ino
        except OSError:
            network = 0
        return cls(Machine.here(), network)

"""Placements: on how many hosts the ranks of a run start, and on which.

In: texts such as "2x4", two hosts with four ranks on each, and a list of hosts. Out: a
`Placement`, and the hosts with their ranks as horovodrun's -H takes them.
"""

import dataclasses
import re
from collections.abc import Sequence

_FORM = re.compile(r"([1-9]\d*)x([1-9]\d*)")


@dataclasses.dataclass(frozen=True)
class Placement:
    """Number of ranks of a run, and of the hosts that share them equally.

    Attributes:
        num_hosts: Number of hosts; None if the slots of the hosts decide.
    """

    num_ranks: int
    num_hosts: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Placement":
        """Reads "2x4": hosts, and ranks of each host."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(
                "--placements must be hosts x ranks of each host, such as 1x8 or 2x4; "
                f"got {text!r}."
            )
        num_hosts, ranks_per_host = map(int, match.groups())
        return cls(num_hosts * ranks_per_host, num_hosts)

    def __str__(self) -> str:
        if self.num_hosts is None:
            return str(self.num_ranks)
        return f"{self.num_hosts}x{self.num_ranks // self.num_hosts}"

    def on(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """Returns the hosts that ranks start on, as horovodrun's -H takes them.

        Args:
            hosts: Hosts in the order of their use: "name" or "name:slots". With none,
                all ranks start on this host.
        """
        if self.num_hosts is None:
            self._check_slots(hosts)
            return tuple(hosts)
        if not hosts and self.num_hosts == 1:
            return ()
        if len(hosts) < self.num_hosts:
            raise ValueError(
                f"--placements={self} must have {self.num_hosts} --hosts, got "
                f"{len(hosts)}."
            )
        num_each = self.num_ranks // self.num_hosts
        used = [_split(host) for host in hosts[: self.num_hosts]]
        for name, slots in used:
            if slots is not None and slots < num_each:
                raise ValueError(
                    f"--placements={self} must have {num_each} slots on each host, got "
                    f"{slots} on {name}."
                )
        return tuple(f"{name}:{num_each}" for name, _ in used)

    def _check_slots(self, hosts: Sequence[str]) -> None:
        if hosts and self.num_ranks > count_slots(hosts):
            raise ValueError(
                f"{self.num_ranks} ranks must fit into the slots of --hosts, got "
                f"{count_slots(hosts)} slots."
            )


def count_slots(hosts: Sequence[str]) -> int:
    """Returns the number of slots of all hosts together."""
    slots = [s for _, s in map(_split, hosts) if s is not None]
    if len(slots) < len(hosts):
        raise ValueError(
            "Without --placements each of --hosts must have its slots, such as "
            f"host1:8; got {','.join(hosts)}."
        )
    return sum(slots)


def _split(host: str) -> tuple[str, int | None]:
    name, colon, slots = host.partition(":")
    if not name or (colon and not (slots.isdecimal() and int(slots))):
        raise ValueError(f"--hosts must be name or name:slots, got {host!r}.")
    return name, int(slots) if colon else None

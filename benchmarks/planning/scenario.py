"""A scenario: a data set, hosts with accelerators, and a storage.

In: figures. Out: a frozen, checked `Scenario`. Units are bytes, seconds and images.
"""

import dataclasses
import math

_MAY_BE_ZERO = ("cache_bytes", "cached_fraction", "exchange_seconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """Equal hosts that train on a data set from a storage.

    Attributes:
        images_per_second: Rate of an accelerator without waits.
        cpu_seconds: CPU time of an image in the input pipeline, on a core of the hosts.
        link_bytes_per_second: Highest rate from the storage to a host, limited by the
            network or by the client.
        storage_bytes_per_second: Most bytes a second of the storage; of a shared
            storage for all hosts together, otherwise for each host.
        requests_per_second: Most requests a second of the storage, likewise.
        cached_fraction: Fraction of the bytes from memory or local caches of the hosts,
            from the second epoch on, 0 to 1.
        exchange_seconds: Time of a step for the exchange of gradients, as far as no
            computation hides the exchange.
    """

    num_images: int
    record_bytes: float
    images_per_second: float
    cpu_seconds: float
    batch_size: int
    num_hosts: int = 1
    accelerators_per_host: int
    cores_per_host: float
    cache_bytes: float = 0.0
    link_bytes_per_second: float = math.inf
    storage_bytes_per_second: float = math.inf
    is_storage_shared: bool = True
    requests_per_second: float = math.inf
    request_bytes: float = 1e6
    cached_fraction: float = 0.0
    exchange_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_zero = value == 0 and name in (*_MAY_BE_ZERO, "is_storage_shared")
            if not value > 0 and not is_zero:
                raise ValueError(f"{name} must be above 0, got {value}.")
        if self.cached_fraction > 1 or math.isinf(self.exchange_seconds):
            raise ValueError(
                "cached_fraction must be at most 1 and exchange_seconds finite, got "
                f"{self.cached_fraction} and {self.exchange_seconds}."
            )

    @property
    def num_bytes(self) -> float:
        """Bytes of an epoch."""
        return self.num_images * self.record_bytes

    @property
    def step_seconds(self) -> float:
        """Time of a step of an accelerator without waits."""
        return self.batch_size / self.images_per_second

    @property
    def num_accelerators(self) -> int:
        """Accelerators of all hosts."""
        return self.num_hosts * self.accelerators_per_host

    @property
    def num_cores(self) -> float:
        """Cores of all hosts."""
        return self.num_hosts * self.cores_per_host

    @property
    def num_storages(self) -> int:
        """Storages of all hosts together."""
        return 1 if self.is_storage_shared else self.num_hosts

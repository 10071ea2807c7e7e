"""A scenario: a data set, hosts with accelerators, and a storage.

In: figures. Out: frozen, checked dataclasses. Units are bytes, seconds and images.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """A data set.

    Attributes:
        num_images: Records of an epoch, >= 1.
        record_bytes: Mean bytes of a record in its shard, above 0.

    Raises:
        ValueError: If a number is out of range.
    """

    num_images: int
    record_bytes: float

    def __post_init__(self) -> None:
        _require_positive(self)

    @property
    def num_bytes(self) -> float:
        """Bytes of an epoch."""
        return self.num_images * self.record_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The cost of an image.

    Attributes:
        accelerator_images_per_second: Rate of an accelerator without waits.
        cpu_seconds: CPU time of the input pipeline, on a core of the hosts.
        batch_size: Images in a step of an accelerator.

    Raises:
        ValueError: If a number is not above 0.
    """

    accelerator_images_per_second: float
    cpu_seconds: float
    batch_size: int

    def __post_init__(self) -> None:
        _require_positive(self)

    @property
    def step_seconds(self) -> float:
        """Time of a step of an accelerator without waits."""
        return self.batch_size / self.accelerator_images_per_second


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedHost:
    """A host; all hosts are equal.

    Attributes:
        num_accelerators: Accelerators, each with a rank.
        num_cores: Cores for the input pipelines; may be a fraction.
        cache_bytes: Memory for the page cache; 0 without a page cache.
        link_bytes_per_second: Highest rate from the storage to a host, limited by the
            network or by the client.

    Raises:
        ValueError: If a number is out of range.
    """

    num_accelerators: int
    num_cores: float
    cache_bytes: float = 0.0
    link_bytes_per_second: float = math.inf

    def __post_init__(self) -> None:
        _require_positive(self, zero_is_allowed=("cache_bytes",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Storage:
    """The storage of the data set.

    Attributes:
        bytes_per_second: Most bytes a second; of a shared storage for all hosts
            together, otherwise for each host.
        is_shared: Whether all hosts share the storage, or each host has a storage.
        requests_per_second: Most requests a second, likewise.
        request_bytes: Bytes of a request.

    Raises:
        ValueError: If a number is not above 0.
    """

    bytes_per_second: float = math.inf
    is_shared: bool = True
    requests_per_second: float = math.inf
    request_bytes: float = 1e6

    def __post_init__(self) -> None:
        _require_positive(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """Hosts that train from a storage.

    Attributes:
        data: The data set.
        work: Cost of an image.
        host: Each host.
        num_hosts: Number of hosts, >= 1.
        storage: The storage.
        cached_fraction: Fraction of the bytes from memory or local caches of the hosts,
            from the second epoch on, 0 to 1.
        exchange_seconds: Time of a step for the exchange of gradients, as far as no
            computation hides the exchange.

    Raises:
        ValueError: If a number is out of range.
    """

    data: Data
    work: Work
    host: PlannedHost
    storage: Storage = dataclasses.field(default_factory=Storage)
    num_hosts: int = 1
    cached_fraction: float = 0.0
    exchange_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.num_hosts < 1:
            raise ValueError(f"num_hosts must be >= 1, got {self.num_hosts}.")
        if not 0 <= self.cached_fraction <= 1:
            raise ValueError(
                f"cached_fraction must be 0 to 1, got {self.cached_fraction}."
            )
        if not 0 <= self.exchange_seconds < math.inf:
            raise ValueError(
                f"exchange_seconds must be >= 0, got {self.exchange_seconds}."
            )

    @property
    def num_accelerators(self) -> int:
        """Accelerators of all hosts."""
        return self.num_hosts * self.host.num_accelerators


def _require_positive(
    part: Data | Work | PlannedHost | Storage, *, zero_is_allowed: tuple[str, ...] = ()
) -> None:
    """Checks that every number of a dataclass is above 0; else raises ValueError."""
    for name, value in vars(part).items():
        if isinstance(value, bool) or (value == 0 and name in zero_is_allowed):
            continue
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}.")

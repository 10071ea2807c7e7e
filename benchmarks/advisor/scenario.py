"""The scenario that is asked about: a data set, hosts with accelerators, a storage.

In: figures. Out: frozen records that check them. Units are bytes, seconds and images.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """A data set.

    Attributes:
        num_images: Records of an epoch, >= 1.
        record_bytes: Mean bytes of a record as it is read, above 0.

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
    """The cost of one image.

    Attributes:
        accelerator_images_per_second: Rate of one accelerator that never waits.
        cpu_seconds: CPU time of the input pipeline, on one core of the hosts.
        batch_size: Images in a step of one accelerator.

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
        """Time of a step of one accelerator that never waits."""
        return self.batch_size / self.accelerator_images_per_second


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """One of several equal hosts.

    Attributes:
        num_accelerators: Accelerators, each with one rank.
        num_cores: Cores that the input pipelines may use; may be a fraction.
        cache_bytes: Memory that can keep files that were read; 0 for none.
        link_bytes_per_second: Highest rate at which a host reads from the storage, over
            its network or by its client.

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
    """The storage that the hosts read from.

    Attributes:
        bytes_per_second: Most bytes a second; for all hosts together if it is shared.
        is_shared: Whether all hosts read from one storage; else each has its own.
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
        work: Cost of one image.
        host: Each host.
        num_hosts: Number of hosts, >= 1.
        storage: The storage.
        cached_fraction: Fraction of the bytes that a host's memory or local cache gives
            from the second epoch on, 0 to 1.
        exchange_seconds: Time by which a step of several ranks is longer than one of a
            single rank: the exchange of gradients that no computation hides.

    Raises:
        ValueError: If a number is out of range.
    """

    data: Data
    work: Work
    host: Host
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
    record: Data | Work | Host | Storage, *, zero_is_allowed: tuple[str, ...] = ()
) -> None:
    """Checks that every number of a record is above 0; raises ValueError if not."""
    for name, value in vars(record).items():
        if isinstance(value, bool) or (value == 0 and name in zero_is_allowed):
            continue
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}.")

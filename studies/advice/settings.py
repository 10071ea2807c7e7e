"""Settings of a training run, drawn by a seed, and the scenario of each.

In: a `Calibration` of this host and a seed. Out: `Setting`s, and a `Scenario` for each.
Never here: measuring.
"""

import dataclasses
import math

import numpy as np

from benchmarks.advisor.scenario import Data, Host, Scenario, Storage, Work

CACHED_WINDOWS = 8  # of the data set that is read through a cache
WINDOW = 1024  # records that tfpipe reads and shuffles together
BATCH_SIZES = (32, 64, 128)  # windows hold whole batches, so that timing fits to them

# Ceilings of accelerator and storage, as multiples of the ceiling of the cores.
_ACCELERATOR = 0.5, 1.6
_STORAGE = 0.6, 1.5
# A shard cache holds 3 windows at least.
_CACHE_SHARES = 0.4, 0.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Figures of this host, measured before any setting is run.

    Attributes:
        num_cores: Cores that the input pipeline had.
        core_seconds: Time of all these cores for an image, when nothing else limits.
        step_overhead_seconds: Time of an image in a step beside the step time: the
            batch is handed over and copied to the device.
        storage_share: Share of a limited storage's rate that the pipeline reads with.
        record_bytes: Mean bytes of a record.

    Raises:
        ValueError: If a number is out of range.
    """

    num_cores: int
    core_seconds: float
    step_overhead_seconds: float
    storage_share: float
    record_bytes: float

    def __post_init__(self) -> None:
        for name in ("num_cores", "core_seconds", "storage_share", "record_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}.")
        if not 0 <= self.step_overhead_seconds < math.inf:
            raise ValueError(
                f"step_overhead_seconds must be >= 0, got {self.step_overhead_seconds}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One run.

    Attributes:
        num_cores: Cores that the run may use.
        batch_size: Images in a step.
        step_time_ms: Time of a step of the emulated accelerator.
        storage_bytes_per_second: Limit of the storage; None for records in memory.
        cache_share: Bytes of the shard cache over bytes of the data; None for none.

    Raises:
        ValueError: If there is a cache in front of a storage without a limit.
    """

    num_cores: int
    batch_size: int
    step_time_ms: float
    storage_bytes_per_second: int | None = None
    cache_share: float | None = None

    def __post_init__(self) -> None:
        if self.cache_share is not None and self.storage_bytes_per_second is None:
            raise ValueError("A setting with a cache must have a limited storage.")

    @property
    def num_windows(self) -> int:
        """Shuffle windows that are read before the timing begins."""
        return 2 if self.cache_share is None else CACHED_WINDOWS


def draw(
    seed: int, num_settings: int, calibration: Calibration, *, can_limit: bool
) -> list[Setting]:
    """Returns settings that differ in all their parts.

    Half of them have a limited storage, and half of these a cache smaller than the
    data; half have fewer cores than the host. The choice is drawn at random, as all
    other values are.

    Args:
        seed: Seed of the draw.
        num_settings: Number of settings, >= 1.
        calibration: Figures of the host, which the ranges are multiples of.
        can_limit: Whether this host can limit a storage.
    """
    random = np.random.default_rng(seed)
    limited = random.permutation(num_settings) % 2 == 0
    cached = np.zeros(num_settings, bool)
    cached[random.permutation(np.flatnonzero(limited))[::2]] = True
    fewer = random.permutation(num_settings) % 2 == 0
    settings = []
    for number in range(num_settings):
        most = calibration.num_cores
        num_cores = int(random.integers(1, max(2, most))) if fewer[number] else most
        batch_size = int(random.choice(BATCH_SIZES))
        rate = num_cores / calibration.core_seconds
        step_seconds = batch_size / rate / _between(random, *_ACCELERATOR)
        share = random.uniform(*_CACHE_SHARES)
        share = float(share) if cached[number] and can_limit else None
        missed = 1 - _hits(share)
        num_bytes = rate * _between(random, *_STORAGE) * calibration.record_bytes
        settings.append(
            Setting(
                num_cores=num_cores,
                batch_size=batch_size,
                step_time_ms=round(step_seconds * 1e3, 1),
                storage_bytes_per_second=round(num_bytes * missed)
                if limited[number] and can_limit
                else None,
                cache_share=share,
            )
        )
    return settings


def _hits(share: float | None) -> float:
    """Returns the share of the bytes that a shard cache gives from epoch 2 on.

    An epoch reads each shard once, so a cache gives at most what it holds. The shard
    cache knows the order of all reads, and comes near to that.
    """
    return share or 0.0


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return math.exp(random.uniform(math.log(low), math.log(high)))


def scenario(
    setting: Setting, calibration: Calibration, *, num_images: int
) -> Scenario:
    """Returns what the advisor is asked about a setting.

    Args:
        setting: The run.
        calibration: Figures of the host.
        num_images: Records of an epoch.
    """
    limit = setting.storage_bytes_per_second
    overhead = calibration.step_overhead_seconds * setting.batch_size
    step_seconds = setting.step_time_ms / 1e3 + overhead
    return Scenario(
        data=Data(num_images=num_images, record_bytes=calibration.record_bytes),
        work=Work(
            accelerator_images_per_second=setting.batch_size / step_seconds,
            cpu_seconds=calibration.core_seconds,
            batch_size=setting.batch_size,
        ),
        host=Host(num_accelerators=1, num_cores=setting.num_cores),
        storage=Storage(
            bytes_per_second=limit * calibration.storage_share if limit else math.inf
        ),
        cached_fraction=_hits(setting.cache_share),
    )

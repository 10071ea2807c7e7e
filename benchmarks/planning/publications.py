"""Published tests of whole systems: what was reached where data came from storage.

In: model, mode, accelerator and number of accelerators. Out: the published row that is
nearest, with its source. published.py has the rates of accelerators with synthetic
input; the rows of this module read real images.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

_DELL = "Dell EMC Isilon F800 and NVIDIA DGX-1, ILSVRC-2012 copied 150 times"
_DELL_LARGE = (
    "Dell EMC Isilon F800 and NVIDIA DGX-1, images of 3 times the side, quality 100"
)
_DELL_READY = "Dell Ready Solutions for AI v1.0, one C4140, Isilon F800, float16"
_WEKA = "WekaIO and one DGX-1, TensorRT"
_LAMBDA = "Lambda, tf_cnn_benchmarks logs c17619d, real data in the page cache"
_TENSORFLOW = "TensorFlow's own benchmarks of 2017, DGX-1, local SSD"

# Mean bytes of a record. ILSVRC-2012 train: 147,531,475,882 bytes of 1,281,167 images.
IMAGENET_RECORD_BYTES = 115_154
# The same images three times as wide and high, as JPEG of quality 100: 22.5 TB in 13
# copies, the larger data set of Dell's and NVIDIA's test of Inception-v4 on 72 V100.
LARGE_RECORD_BYTES = 1_351_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Publication:
    """One row of a published test.

    Attributes:
        source: Who published it, and on which storage.
        model: A key of `catalog.MODELS`.
        mode: "train" or "infer".
        accelerator: Name of the accelerator, as --emulate takes it.
        num_accelerators: Number of accelerators, >= 1.
        images_per_second: Rate of all accelerators together, above 0.
        is_computed: Whether the rate is computed from published megabytes a second and
            bytes of a record, and not published itself.
        batch_size: Images in a step of one accelerator; None if not published.
        storage_megabytes_per_second: Rate of the storage; None if not published.
        host_cpu_fraction: Busy part of the cores, 0 to 1; None if not published.
        accelerator_busy_fraction: Busy part of the accelerators, likewise.
        is_local: Whether the data was on a disk of the host.

    Raises:
        ValueError: If a number is out of range, or the source is empty.
    """

    source: str
    model: str
    mode: str
    accelerator: str
    num_accelerators: int
    images_per_second: float
    is_computed: bool = False
    batch_size: int | None = None
    storage_megabytes_per_second: float | None = None
    host_cpu_fraction: float | None = None
    accelerator_busy_fraction: float | None = None
    is_local: bool = False

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("The source of a published row must be given, got none.")
        numbers = (self.num_accelerators, self.images_per_second)
        more = (self.batch_size, self.storage_megabytes_per_second)
        for figure in (*numbers, *(value for value in more if value is not None)):
            if not 0 < figure < math.inf:
                raise ValueError(f"A published number must be above 0, got {figure}.")
        for share in (self.host_cpu_fraction, self.accelerator_busy_fraction):
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"A published share must be 0 to 1, got {share}.")

    @property
    def images_per_second_per_accelerator(self) -> float:
        """Rate of one accelerator, on the mean."""
        return self.images_per_second / self.num_accelerators

    def as_json(self) -> dict[str, Any]:
        """Returns the fields and the rate of one accelerator, for JSON."""
        own = {
            "images_per_second_per_accelerator": self.images_per_second_per_accelerator
        }
        return dataclasses.asdict(self) | own


def _rows(
    count: int,
    source: str,
    accelerator: str,
    mode: str,
    rates: Mapping[str, float],
    **more: Any,
) -> list[Publication]:
    """Returns a row for each model, of a number of accelerators."""
    return [
        Publication(
            source=source,
            model=model,
            mode=mode,
            accelerator=accelerator,
            num_accelerators=count,
            images_per_second=rate,
            **more,
        )
        for model, rate in rates.items()
    ]


def _dell(
    model: str, megabytes: float, record_bytes: int, source: str, **more: Any
) -> list[Publication]:
    """Returns a row of the test on 72 V100, which published the storage's rate."""
    return _rows(
        *(72, source, "v100", "train", {model: megabytes * 1e6 / record_bytes}),
        is_computed=True,
        storage_megabytes_per_second=megabytes,
        **more,
    )


# Where several rows fit equally well, the first one is taken.
PUBLICATIONS: Sequence[Publication] = (
    *_dell(
        *("resnet50", 5907.0, IMAGENET_RECORD_BYTES, _DELL),
        batch_size=256,
        host_cpu_fraction=0.46,
        accelerator_busy_fraction=0.97,
    ),
    *_dell(
        *("inception_v4", 19_895.0, LARGE_RECORD_BYTES, _DELL_LARGE),
        host_cpu_fraction=0.84,
        accelerator_busy_fraction=0.98,
    ),
    # Megabits a second of the disks: 2,680 and 1,440.
    *_rows(
        *(4, _DELL_READY, "v100", "train", {"resnet50": 2940.0}),
        storage_megabytes_per_second=335.0,
        host_cpu_fraction=0.33,
    ),
    *_rows(
        *(4, _DELL_READY, "v100", "train", {"vgg16": 1590.0}),
        storage_megabytes_per_second=180.0,
    ),
    *_rows(8, f"{_WEKA}, shared storage", "v100", "infer", {"googlenet": 42_000.0}),
    *_rows(
        *(8, f"{_WEKA}, local NVMe", "v100", "infer", {"googlenet": 17_000.0}),
        is_local=True,
    ),
    *_rows(
        *(8, _LAMBDA, "a100", "train"),
        {"resnet50": 14_356.0, "resnet152": 6021.0}
        | {"inception_v3": 8552.0, "inception_v4": 4181.0},
    ),
    *_rows(
        *(8, _LAMBDA, "a100", "infer"),
        {"resnet50": 28_581.0, "inception_v3": 16_135.0},
    ),
    *_rows(
        *(8, _TENSORFLOW, "p100", "train"),
        {
            "resnet50": 1630.0,
            "resnet152": 708.0,
            "vgg16": 898.0,
            "inception_v3": 1079.0,
        },
        batch_size=64,
        is_local=True,
    ),
)


def find(
    *,
    model: str,
    mode: str,
    accelerator: str | None,
    num_accelerators: int,
    is_local: bool = False,
) -> Publication | None:
    """Returns the published row to lay beside a measured one; None if there is none.

    It has the same model and mode. Among several it is the row whose number of
    accelerators is nearest, as a ratio, and then one whose data was in such a place.

    Args:
        model: Name of the model.
        mode: "train" or "infer".
        accelerator: Name of the accelerator, such as "a100_mlperf_storage", whose kind
            the row must have; None if it is not known, so that each kind is taken.
        num_accelerators: Number of ranks.
        is_local: Whether the data is on a disk of the host.
    """
    kind = (accelerator or "").partition("_")[0]
    rows = [
        row
        for row in PUBLICATIONS
        if (row.model, row.mode) == (model, mode) and kind in ("", row.accelerator)
    ]
    return min(
        rows,
        key=lambda row: (
            abs(math.log(row.num_accelerators / num_accelerators)),
            row.is_local != is_local,
        ),
        default=None,
    )

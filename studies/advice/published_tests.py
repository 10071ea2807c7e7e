"""The published tests as scenarios, each with what was published and where.

In: nothing. Out: `TESTS`. The scenarios hold the hardware that the publications state,
and rates of accelerators and costs of images from other publications or from our stored
results. A figure that had to be taken from the test itself is marked as given.
"""

import dataclasses
import math

from benchmarks.advisor.scenario import Data, Host, Scenario, Storage, Work

QUANTITIES = (
    "images_per_second",
    "storage_bytes_per_second",
    "cpu_share",
    "busy_share",
    "num_accelerators",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A published figure.

    Attributes:
        quantity: One of `QUANTITIES`. Shares are 0 to 1. "num_accelerators" is the
            number that the storage keeps busy for 90 % of the time.
        value: The figure, above 0.
        reason: Reason of a difference above 15 %, if there is one; else empty.
        is_given: Whether the scenario was made from this figure.

    Raises:
        ValueError: If the quantity is not known or the value is not above 0.
    """

    quantity: str
    value: float
    reason: str = ""
    is_given: bool = False

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise ValueError(
                f"quantity must be one of {', '.join(QUANTITIES)}, got {self.quantity}."
            )
        if not 0 < self.value < math.inf:
            raise ValueError(f"value must be above 0, got {self.value}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedTest:
    """A published test.

    Attributes:
        name: What was tested.
        scenario: The test, as the advisor is asked about it.
        binding: The resource that bound the test, as published.
        next_binding: The next limit, as published; None if nothing was said.
        figures: The published figures.
        source: Where they were published.
        inputs: Where the figures of the scenario come from.
    """

    name: str
    scenario: Scenario
    binding: str
    figures: tuple[Published, ...]
    source: str
    inputs: str
    next_binding: str | None = None


# ILSVRC-2012: 147,531,475,882 bytes of TFRecords, 1,281,167 images (ai-benchmark-util).
_IMAGES, _RECORD = 1_281_167, 115_154.0
_LARGE = 1.351e6  # three times the side, quality 100
_PIXELS = 150_528.0  # 224 x 224 x 3

_DELL = "Dell EMC and NVIDIA, Isilon F800 and DGX-1, November 2018"
_READY = "Dell EMC Ready Solutions for AI, Deep Learning with NVIDIA, v1.0"
_WEKA = "WekaIO, one host of 8 V100"
_LAMBDA = "Lambda, tf_cnn_benchmarks logs, 8 A100-SXM4, real ImageNet in memory"

# One V100 of 8 with float16 and software of 2018: 5,534 images/s on a DGX-1, synthetic,
# tensorflow/models issue 5225. Inception-v4: that rate, times the ratio of Inception-v4
# to ResNet-50 in Lambda's logs (357 over 1,276).
_V100_2018 = 5_534 / 8
_V100_2018_INCEPTION = _V100_2018 * 357 / 1_276
_V100_INPUTS = (
    "V100: 5,534 images/s of 8, synthetic, DGX-1, September 2018 "
    "(tensorflow/models issue 5225)"
)

# CPU time of an image on hosts of 2018: 33 % of 40 cores at 2,940 images/s (Ready
# Solutions). For large images: times the ratio of 1.351 MB to 115 kB on the line of
# the stock pipeline at 104 kB (3.962 ms) and 1 MB (13.154 ms) of our stored results.
_CPU_2018 = 0.33 * 40 / 2_940
_CPU_SLOPE = (13.154 - 3.962) / (1e6 - 103_564)
_CPU_2018_LARGE = (
    _CPU_2018
    * (3.962 + (_LARGE - 103_564) * _CPU_SLOPE)
    / (3.962 + (_RECORD - 103_564) * _CPU_SLOPE)
)
_CPU_INPUTS = f"CPU: 33 % of 40 cores at 2,940 images/s ({_READY})"
_CPU_LARGE_INPUTS = (
    f"{_CPU_INPUTS}, times 4.1 for 1.351 MB (2026-11-21-decode-path.json, "
    "2026-11-22-decode-large.json, stock pipeline)"
)
_CPU_REASON = (
    "the CPU time of an image is that of another host, whose publication counts cores "
    "and may leave out hyper-threads; the cores do not bind in either"
)

# 8 F800 nodes are two chassis of 15 GB/s (data sheet); a host has 40 cores and
# 100 Gb/s Ethernet.
_F800 = Storage(bytes_per_second=30e9)
_DGX1 = Host(num_accelerators=8, num_cores=40, link_bytes_per_second=10e9)
_DGX1_INPUTS = "DGX-1: 40 cores, 100 Gb/s; 8 F800 nodes: 30 GB/s (data sheets)"


def _dell(num_hosts: int, *, is_large: bool = False) -> Scenario:
    copies = 13 if is_large else 150
    return Scenario(
        data=Data(
            num_images=_IMAGES * copies, record_bytes=_LARGE if is_large else _RECORD
        ),
        work=Work(
            accelerator_images_per_second=(
                _V100_2018_INCEPTION if is_large else _V100_2018
            ),
            cpu_seconds=_CPU_2018_LARGE if is_large else _CPU_2018,
            batch_size=64 if is_large else 256,
        ),
        host=_DGX1,
        storage=_F800,
        num_hosts=num_hosts,
    )


def _weka(storage: Storage, link: float = math.inf) -> Scenario:
    """Returns GoogLeNet inference on 8 V100, from arrays of pixels.

    The rate of a V100 is that of the test with shared storage: 42,000 of 8. The CPU
    time is that of reading alone, 0.154 ms.
    """
    return Scenario(
        data=Data(num_images=_IMAGES, record_bytes=_PIXELS),
        work=Work(
            accelerator_images_per_second=42_000 / 8,
            cpu_seconds=0.154e-3,
            batch_size=128,
        ),
        host=Host(num_accelerators=8, num_cores=40, link_bytes_per_second=link),
        storage=storage,
    )


_WEKA_INPUTS = (
    "V100: the 42,000 images/s of 8 of this very test; 150,528 B an image (assumed: "
    "arrays of 224 x 224 x 3); CPU: reading only, 2026-11-23-shard-cache.json"
)


def _ready(rate: float) -> Scenario:
    return Scenario(
        data=Data(num_images=12_811_670, record_bytes=1_448_283_629_516 / 12_811_670),
        work=Work(
            accelerator_images_per_second=rate / 4,
            cpu_seconds=_CPU_2018,
            batch_size=256,
        ),
        host=Host(num_accelerators=4, num_cores=40, link_bytes_per_second=10e9),
        storage=Storage(bytes_per_second=15e9),
    )


def _lambda(synthetic: float) -> Scenario:
    """Returns 8 A100 with 128 cores; the stock pipeline of our results feeds them."""
    return Scenario(
        data=Data(num_images=_IMAGES, record_bytes=_RECORD),
        work=Work(
            accelerator_images_per_second=synthetic / 8,
            cpu_seconds=3.962e-3,
            batch_size=256,
        ),
        host=Host(num_accelerators=8, num_cores=128),
    )


_LAMBDA_INPUTS = (
    "accelerators: synthetic images/s of the same logs; CPU: 3.96 ms, stock pipeline, "
    "2026-11-21-decode-path.json; two EPYC 7742 (128 cores) are assumed"
)


def _unet(storage: float) -> Scenario:
    """Returns one accelerator of MLPerf Storage v0.5 with 3D U-Net on V100.

    A step of 4 samples takes 1.3604 s. A sample has 146,600,628 bytes.
    """
    return Scenario(
        data=Data(num_images=125_000, record_bytes=146_600_628),
        work=Work(
            accelerator_images_per_second=4 / 1.3604, cpu_seconds=1e-3, batch_size=4
        ),
        host=Host(num_accelerators=1, num_cores=8),
        storage=Storage(bytes_per_second=storage),
    )


TESTS = (
    PublishedTest(
        name="ResNet-50, 72 V100, 9 DGX-1, Isilon",
        scenario=_dell(9),
        binding="accelerator",
        next_binding="cpu",
        figures=(
            Published(quantity="storage_bytes_per_second", value=5.907e9),
            Published(quantity="cpu_share", value=0.46, reason=_CPU_REASON),
            Published(quantity="busy_share", value=0.97),
        ),
        source=_DELL,
        inputs=f"{_V100_INPUTS}; {_CPU_INPUTS}; {_DGX1_INPUTS}",
    ),
    PublishedTest(
        name="ResNet-50, 8 V100, 1 DGX-1, Isilon",
        scenario=_dell(1),
        binding="accelerator",
        figures=(
            # Linear from 8 to 72 GPUs.
            Published(quantity="storage_bytes_per_second", value=5.907e9 / 9),
        ),
        source=_DELL,
        inputs=f"{_V100_INPUTS}; {_CPU_INPUTS}; {_DGX1_INPUTS}",
    ),
    PublishedTest(
        name="Inception-v4, 1.35 MB images, 72 V100",
        scenario=_dell(9, is_large=True),
        binding="accelerator",
        next_binding="cpu",
        figures=(
            Published(quantity="storage_bytes_per_second", value=19.895e9),
            Published(quantity="cpu_share", value=0.84, reason=_CPU_REASON),
            Published(quantity="busy_share", value=0.98),
        ),
        source=_DELL,
        inputs=f"{_V100_INPUTS}, times 357 / 1,276 (Lambda); {_CPU_LARGE_INPUTS}; "
        f"{_DGX1_INPUTS}",
    ),
    *(
        PublishedTest(
            name=f"{model}, 4 V100, Isilon",
            scenario=_ready(rate),
            binding="accelerator",
            figures=(
                Published(quantity="images_per_second", value=rate, is_given=True),
                Published(
                    quantity="storage_bytes_per_second", value=megabits * 1e6 / 8
                ),
            ),
            source=_READY,
            inputs="images/s: given; 1,448,283,629,516 B of 12,811,670 images",
        )
        for model, rate, megabits in (
            ("AlexNet", 7_095, 6_370),
            ("ResNet-50", 2_940, 2_680),
            ("VGG-16", 1_590, 1_440),
        )
    ),
    PublishedTest(
        name="GoogLeNet inference, 8 V100, shared storage",
        scenario=_weka(Storage(bytes_per_second=30e9), 10e9),
        binding="accelerator",
        figures=(Published(quantity="images_per_second", value=42_000, is_given=True),),
        source=_WEKA,
        inputs=f"{_WEKA_INPUTS}; storage: over 30 GB/s; 100 Gb/s: over 10 GB/s",
    ),
    PublishedTest(
        name="GoogLeNet inference, 8 V100, local NVMe",
        scenario=_weka(Storage(bytes_per_second=2.8e9, is_shared=False)),
        binding="storage",
        figures=(Published(quantity="images_per_second", value=17_000),),
        source=_WEKA,
        inputs=f"{_WEKA_INPUTS}; drive: 2.8 GB/s (data sheet of Intel's DC P3700; the "
        "test names none, drives of that time read 2.6 to 3.3 GB/s)",
    ),
    PublishedTest(
        name="GoogLeNet inference, 8 V100, NFS",
        scenario=_weka(Storage(bytes_per_second=30e9), 1.5e9),
        binding="link",
        figures=(
            Published(quantity="storage_bytes_per_second", value=1.5e9, is_given=True),
        ),
        source=_WEKA,
        inputs=f"{_WEKA_INPUTS}; NFS: about 1.5 GB/s for a client",
    ),
    *(
        PublishedTest(
            name=f"{model}, 8 A100, real images in memory",
            scenario=_lambda(synthetic),
            binding=binding,
            figures=(Published(quantity="images_per_second", value=real),),
            source=_LAMBDA,
            inputs=_LAMBDA_INPUTS,
        )
        for model, synthetic, real, binding in (
            ("ResNet-50 training", 14_815, 14_356, "accelerator"),
            ("ResNet-152 training", 6_698, 6_021, "accelerator"),
            ("ResNet-50 inference", 50_421, 28_581, "cpu"),
            ("AlexNet inference", 294_839, 28_665, "cpu"),
            ("AlexNet training", 93_466, 30_695, "cpu"),
        )
    ),
    PublishedTest(
        name="MLPerf Storage v0.5, 3D U-Net, 5 nodes",
        scenario=_unet(25e9),
        binding="accelerator",
        figures=(Published(quantity="num_accelerators", value=65),),
        source="Nutanix Files, n0derunner.com: 25 GB/s to 5 clients, 65 accelerators",
        inputs="V100: 4 samples of 146,600,628 B in 1.3604 s (mlcommons/storage)",
    ),
)

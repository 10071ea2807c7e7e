"""Sizes as people write them, and the number of copies that a rule asks for."""

import math

import hypothesis
import pytest
from hypothesis import strategies

from converters.exports import sizing

IMAGENET = 144_800_000_000


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("22TB", 22 * 10**12),
        ("512 GB", 512 * 10**9),
        ("1.5e12", 1_500_000_000_000),
        ("64GiB", 64 * 2**30),
        ("64gib", 64 * 2**30),
        ("2kib", 2048),
        ("3MiB", 3 * 2**20),
        ("5TiB", 5 * 2**40),
        ("1 PiB", 2**50),
        ("0.5PB", 5 * 10**14),
        ("1kB", 1000),
        ("7", 7),
        ("7b", 7),
        ("2t", 2 * 10**12),
        ("1e3MB", 10**9),
    ],
)
def test_sizes_are_decimal_unless_they_have_an_i(text: str, num_bytes: int) -> None:
    assert sizing.parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GB",
        "-1GB",
        "0",
        "0.1",
        "1.2.3GB",
        "22 XB",
        "nan",
        "inf",
        "1e400",
        "iB",
        "1i",
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        sizing.parse_bytes(text)


@hypothesis.given(strategies.integers(1, 10**20))
def test_a_shown_size_is_read_back_to_four_digits(num_bytes: int) -> None:
    text = sizing.shown(num_bytes).replace(",", "").replace(" bytes", "")

    assert sizing.parse_bytes(text) == pytest.approx(num_bytes, rel=1e-3)


def _size(**wanted: object) -> sizing.Sizing:
    return sizing.size(
        sizing.Wanted(**wanted),  # type: ignore[arg-type]
        all_bytes=IMAGENET + 6_700_000_000,
        read_bytes=IMAGENET,
        split="train",
    )


def test_the_published_tests() -> None:
    # Nine DGX-1 of 512 GB: 5 times their memory; 22 TB is 145.2 of 151.5 GB.
    by_ram = _size(ram_bytes=512 * 10**9, num_hosts=9)
    by_cache = _size(ram_bytes=10**9, num_hosts=1, storage_cache_bytes=IMAGENET)
    by_size = _size(target_bytes=22 * 10**12)

    assert (by_ram.copies, by_ram.needed_bytes) == (160, 23_040_000_000_000)
    assert by_ram.lines[0].endswith("5 x 9 hosts x 512 GB RAM = 23.04 TB")
    assert by_ram.lines[-1] == (
        "23.04 TB / 144.8 GB for the train split of one copy = 160 copies, rounded up"
    )
    assert by_size.copies == 146
    assert by_cache.copies == 2, "as much as the cache is not more than the cache"
    assert _size(copies=150) == sizing.Sizing(copies=150, needed_bytes=None, lines=())


@hypothesis.given(
    strategies.integers(1, 10**13), strategies.integers(1, 64), strategies.floats(1, 9)
)
def test_the_fewest_copies_that_exceed_the_memory(
    ram: int, hosts: int, factor: float
) -> None:
    copies = _size(ram_bytes=ram, num_hosts=hosts, ram_factor=factor).copies

    assert copies * IMAGENET >= ram * hosts * factor * (1 - 1e-12)
    assert copies == 1 or (copies - 1) * IMAGENET < math.ceil(ram * hosts * factor)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, "Exactly one of --copies.*got 0"),
        ({"copies": 2, "target_bytes": 5}, "got 2 of them"),
        ({"copies": 0}, "--copies must be >= 1, got 0"),
        ({"ram_bytes": 5, "num_hosts": 0}, "--num_hosts must be >= 1"),
        ({"ram_bytes": 5, "ram_factor": 0.5}, "--ram_factor must be >= 1"),
        ({"copies": 2, "num_hosts": 9}, "need --for_ram"),
        ({"copies": 2, "storage_cache_bytes": 9}, "need --for_ram"),
    ],
)
def test_wants_that_do_not_fit_together(
    wanted: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _size(**wanted)

"""studies: the modules that studies start in processes of their own."""

import pathlib
import sys

import pytest

from studies import conversion_scale, decode, decode_variants, shuffle_memory
from tests.support.data import convert, make_tree
from tests.support.warm_python import WarmPython


def test_decode_starts_its_variants(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", warm_python.program(tmp_path))
    job = decode_variants.Job(
        data_dir=str(data_dir),
        image_size=16,
        batch_size=2,
        num_warmup_images=2,
        num_timed_images=400,
    )

    figures = decode.compare(job, ["lean_uint8"], 1)

    assert list(figures) == ["hand_uint8", "lean_uint8"]
    assert figures["hand_uint8"]["cpu_ratio"] == 1.0


def test_shuffle_memory_reads_in_a_process(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "records"
    convert(make_tree(tmp_path / "raw", num_images=32), folder)  # one batch

    peak = shuffle_memory.peak_bytes(str(folder), 32, {"MALLOC_ARENA_MAX": "1"})

    assert 1e8 < peak < 1e10  # TensorFlow alone takes a few hundred MB


def test_conversion_scale_plans_and_watches(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    plan = conversion_scale._python("-c", conversion_scale._PLAN, raw_dir)
    watched = conversion_scale.watch(raw_dir, tmp_path / "out", "--num_workers=2")

    bytes_per_image, seconds = map(float, plan.split())
    assert bytes_per_image >= 0
    assert seconds > 0
    assert watched.returncode == 0
    assert watched.parent_peak > 1e7
    assert (tmp_path / "out" / "index.json").exists()

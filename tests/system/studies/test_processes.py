"""studies: the modules that studies start in processes of their own."""

import pathlib
import sys

import pytest

from studies import decode, decode_variants
from tests.support.processes.warm_python import WarmPython


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

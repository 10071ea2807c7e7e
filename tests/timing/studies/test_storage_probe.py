"""The probe and fio see the same disk; the study shows how well they agree."""

import pathlib
import shutil

import pytest

from studies import storage


def test_probe_agrees_with_fio(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed: apt-get install fio")
    monkeypatch.setattr(storage, "_FILE_BYTES", 128 << 20)

    rows = storage.measure(str(tmp_path), rounds=3, seconds=0.4)

    assert [row["what"] for row in rows] == ["sequential", "random"]
    for row in rows:
        assert 0.5 < row["ratio"] < 2, row
    assert not list(tmp_path.iterdir())

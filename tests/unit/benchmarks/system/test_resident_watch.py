"""benchmarks.system.telemetry: the files' part of the page cache during a run."""

import pytest

from benchmarks.system import page_cache, telemetry
from benchmarks.system.telemetry import ResidentWatch


def test_a_large_data_set_is_measured_by_an_even_sample():
    files = [f"{number:04}" for number in range(1000)]

    assert telemetry.even_sample(files, 15e9) == files
    assert telemetry.even_sample(files, 160e9) == files[::10]
    assert telemetry.even_sample(files[:3], 160e9) == files[:1]


def test_the_newest_measurement_is_read(tmp_path, monkeypatch):
    def measure(files):
        return {"resident_bytes": 3, "num_bytes": 4 * len(files), "remark": ""}

    monkeypatch.setattr(page_cache, "measure", measure)

    with ResidentWatch(["one"], 4.0, 60.0) as watch:
        reading = watch.read()

    assert reading.gauges == {"resident_fraction": 0.75}
    assert reading.counters == {}


def test_files_that_cannot_be_measured_say_why(tmp_path, monkeypatch):
    with ResidentWatch([str(tmp_path / "gone")], 4.0, 60.0) as watch:
        pass
    with pytest.raises(OSError, match="No such file"):
        watch.read()

    unknown = {"resident_bytes": None, "num_bytes": 4, "remark": "not owned"}
    monkeypatch.setattr(page_cache, "measure", lambda files: unknown)
    with ResidentWatch(["one"], 4.0, 60.0) as watch:
        pass
    with pytest.raises(OSError, match="not owned"):
        watch.read()

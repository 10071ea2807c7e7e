"""benchmarks.page_cache.states: the files' part of the page cache during a run."""

import pytest

from benchmarks.page_cache import states
from benchmarks.system import telemetry


def test_a_large_data_set_is_measured_by_an_even_sample(monkeypatch):
    names, opened = [f"{number:04}" for number in range(1000)], []
    monkeypatch.setattr(states, "OpenFiles", opened.append)

    for some, num_bytes in ((names, 15e9), (names, 160e9), (names[:3], 160e9)):
        with pytest.raises(AttributeError):  # None was opened
            next(states.resident_probe(some, num_bytes))

    assert opened == [names, names[::10], names[:1]]


def test_a_sampler_reads_the_part_in_memory(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 5000)

    reading = next(states.resident_probe([str(tmp_path / "file")], 5000.0))

    assert reading == {"resident_fraction": 1.0}


def test_files_that_cannot_be_measured_say_why(tmp_path, monkeypatch):
    def absent(name: str) -> str:
        def probe():
            return states.resident_probe([str(tmp_path / name)], 4.0)

        with telemetry.Sampler(more={"resident": probe}) as sampler:
            pass
        return sampler.figures()["absent"]["resident"]

    assert "No such file" in absent("gone")
    (tmp_path / "file").write_bytes(b"x")
    monkeypatch.setattr(states, "may_see_residency", lambda path: False)
    assert "only to a process that owns it" in absent("file")

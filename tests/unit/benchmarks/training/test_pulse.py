"""benchmarks.training.recorder: a process that does not run is told from a busy one."""

import pytest

from benchmarks.training import recorder


@pytest.mark.parametrize(
    ("wall", "cpu", "silent"),
    [
        (0.02, 0.0, []),  # woke up in time
        (0.09, 0.0, []),  # a busy host
        (2.02, 0.001, [(2.0)]),  # stopped
        (2.02, 1.9, []),  # a call of C that keeps Python's lock
        (2.02, 3.8, []),  # two threads compute
    ],
)
def test_silences(
    monkeypatch: pytest.MonkeyPatch, wall: float, cpu: float, silent: list[float]
) -> None:
    now = {"wall": 50.0, "cpu": 3.0}
    monkeypatch.setattr(recorder, "_now", lambda: tuple(now.values()))
    pulse = recorder.Pulse()

    now["wall"] += wall
    now["cpu"] += cpu
    taken = pulse.take()

    assert [end - begin for begin, end in taken] == pytest.approx(silent)
    assert all(end == now["wall"] for _, end in taken)
    assert pulse.take() == []

"""tfpipe.host: what the kernel says of this machine."""

import os

import pytest

from tfpipe import host


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 1 << 62),
        ({"proc/meminfo": "MemAvailable:  70 kB\n"}, 70 * 1024),
        (
            {
                "proc/meminfo": "MemTotal: 90 kB\nMemAvailable: 70 kB\n",
                "proc/self/cgroup": "0::/job/1\n",
                "sys/fs/cgroup/job/1/memory.max": "max\n",
                "sys/fs/cgroup/job/1/memory.current": "100\n",
                "sys/fs/cgroup/job/memory.max": "1000\n",
                "sys/fs/cgroup/job/memory.current": "600\n",
                "sys/fs/cgroup/job/memory.stat": "anon 50\nfile 30\n",
            },
            430,
        ),
        (
            {
                "proc/self/cgroup": "7:cpu:/x\n4:memory:/job\n0::/\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "900\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "600\n",
                "sys/fs/cgroup/memory/job/memory.stat": "cache 1\ntotal_cache 40\n",
            },
            340,
        ),
    ],
)
def test_ram_left_is_the_least_that_the_kernel_allows(
    tmp_path, monkeypatch, files, left
):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = host._lines
    monkeypatch.setattr(
        host, "_lines", lambda path: lines(tmp_path / str(path).lstrip("/"))
    )

    assert host.ram_left() == left


@pytest.mark.parametrize(
    ("text", "num_cores"),
    [
        ("max 100000\n", lambda own: own),
        ("100000 100000\n", lambda _: 1),
        ("50000 100000\n", lambda _: 1),  # never none
        ("99900000 100000\n", lambda own: own),
        ("", lambda own: own),
    ],
)
def test_cores_are_those_of_the_affinity_and_the_quota(
    tmp_path, monkeypatch, text, num_cores
):
    path = tmp_path / "cpu.max"
    path.write_text(text)
    lines = host._lines
    monkeypatch.setattr(host, "_lines", lambda _: lines(path))

    assert host.num_cores() == num_cores(len(os.sched_getaffinity(0)))


def test_the_processor_and_the_memory_are_known():
    assert host.cpu_model()
    assert host.ram_bytes() > 1 << 28

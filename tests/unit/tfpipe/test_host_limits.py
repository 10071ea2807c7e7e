"""tfpipe.host.limits: limits of control groups, with files in place of the kernel's."""

import pytest

from tfpipe import host
from tfpipe.host import Limits

_V2 = "41 31 0:38 / /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n"
_V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
_CPU = "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected"),
    [
        ("", "", {}, Limits()),
        ("0::/\n", "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n", {}, Limits()),
        pytest.param(
            "0::/job/1\n",
            _V2,
            {
                "sys/fs/cgroup/job/1/cpu.max": "max 100000\n",
                "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/job/1/memory.max": "max\n",
                "sys/fs/cgroup/job/1/memory.current": "100\n",
                "sys/fs/cgroup/job/memory.max": "1000\n",
                "sys/fs/cgroup/job/memory.current": "600\n",
                "sys/fs/cgroup/job/memory.stat": "anon 50\nfile 30\n",
            },
            Limits(2.5, 1000, 430),
            id="the group above has the limit",
        ),
        pytest.param(
            "0::/\n",
            _V2,
            {"sys/fs/cgroup/cpu.max": "50000 100000\n"},
            Limits(0.5),
            id="a container with a namespace of groups",
        ),
        pytest.param(
            "0::/docker/abc\n",
            "41 31 0:38 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
            {"sys/fs/cgroup/cpu.max": "300000 100000\n"},
            Limits(3.0),
            id="a container whose group is the root of the mount",
        ),
        pytest.param(
            "4:memory:/job\n3:cpuacct,cpu:/a\n0::/\n",
            _V1,
            {
                f"{_CPU}/a/cpu.cfs_quota_us": "150000\n",
                f"{_CPU}/a/cpu.cfs_period_us": "50000\n",
                f"{_CPU}/cpu.cfs_quota_us": "-1\n",
                f"{_CPU}/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "900\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "600\n",
                "sys/fs/cgroup/memory/job/memory.stat": "cache 1\ntotal_cache 40\n",
            },
            Limits(3.0, 900, 340),
            id="version 1",
        ),
        pytest.param(
            "4:memory:/host/name\n",
            _V1,
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "900\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "600\n",
            },
            Limits(None, 900, 300),
            id="a group that the container cannot see",
        ),
        pytest.param(
            "0::/job\n3:cpu:/\n",
            _V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified") + _V1,
            {
                f"{_CPU}/cpu.cfs_quota_us": "200000\n",
                f"{_CPU}/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/unified/job/memory.max": "700\n",
                "sys/fs/cgroup/unified/job/memory.current": "100\n",
            },
            Limits(2.0, 700, 600),
            id="both versions at once",
        ),
    ],
)
def test_the_least_limit_of_all_groups_counts(
    tmp_path, groups, mounts, files, expected
):
    files |= {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert host.limits(root=tmp_path) == expected


def test_a_host_without_proc_has_no_limits(tmp_path):
    assert host.limits(root=tmp_path) == Limits()

"""The host: the cores, memory and processor for a process, and its checkout.

In: files of the kernel in /proc and /sys, git, and the C library. Out: numbers, and
names. Imports no TensorFlow.
"""

import ctypes
import dataclasses
import os
import pathlib
from collections.abc import Iterator

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
_GIT_SECONDS = 10.0
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
_MEMORY = pathlib.Path("/proc/meminfo")
# Parameters of mallopt(3): their numbers in malloc.h, and values.
_MALLOC_PARAMETERS = {
    "M_MMAP_THRESHOLD": (-3, 1 << 30),
    "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1),
    "M_TOP_PAD": (-2, 64 << 20),
}
# Version 1 writes the largest number of pages for "no limit".
_NO_LIMIT = 1 << 60
# By type of file system: the limit, the use, and the page cache within the use.
_GROUP_MEMORY = {
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
    "cgroup2": ("memory.max", "memory.current", "file"),
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of the control groups of this process.

    Attributes:
        cores: Cores that the processes of a group may use together; None without quota.
        memory_bytes: Memory of the processes of a group together; None without limit.
        memory_left: Memory that the process can still get, page cache included; None
            without limit.
    """

    cores: float | None = None
    memory_bytes: int | None = None
    memory_left: int | None = None


def num_cores() -> int:
    """Returns the number of cores that affinity and cgroup quota allow the process."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cores if quota is None else min(cores, quota)


def cpu_quota() -> int | None:
    """Returns the cores that the processes of the control group may use together.

    The number is the least quota of the control groups of the process, of version 1 or
    2, rounded down, at least 1. None means no quota.

    Example:
        >>> quota = tfpipe.host.cpu_quota()
        >>> quota is None or quota >= 1
        True
    """
    cores = limits().cores
    return None if cores is None else max(1, int(cores))


def cpu_model() -> str:
    """Returns the name of the processor.

    Example:
        >>> tfpipe.host.cpu_model()
        '...'
    """
    for line in _lines(pathlib.Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def git_revision() -> str | None:
    """Returns the git commit of the package's checkout, with "-dirty" if changed.

    Example:
        >>> revision = tfpipe.host.git_revision()
        >>> revision is None or len(revision.removesuffix("-dirty")) == 40
        True

    Returns:
        40 hexadecimal digits, followed by "-dirty" if a file differs from the commit;
        None if the package does not run from a git checkout, or git is not installed.
    """
    # A package may be installed below a checkout of something else.
    if not (_CHECKOUT / ".git").exists():
        return None
    import subprocess  # takes 6 ms, and most packages run from no checkout

    # Without optional locks git changes no file of the checkout.
    describe = "describe --always --dirty --abbrev=40 --exclude=*"
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *describe.split()],
            cwd=_CHECKOUT,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def boot_id() -> str:
    """Returns a text that changes with each start of the host; "" if it is unknown."""
    return "".join(_lines(_BOOT_ID))


def keep_freed_memory() -> list[str]:
    """Lets the process keep and reuse the memory of large tensors.

    A batch of images is larger than the pieces of memory that glibc keeps. By default
    every batch, and every copy of a batch, is made in new pages, and the kernel clears
    the pages first. After the call the process never shrinks below its largest size.

    Example:
        >>> tfpipe.host.keep_freed_memory()  # nothing was refused
        []

    Returns:
        The names of the refused parameters of mallopt(3); all names if the C library is
        not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return [
        name
        for name, parameter_and_value in _MALLOC_PARAMETERS.items()
        if mallopt is None or mallopt(*parameter_and_value) != 1
    ]


def ram_bytes() -> int:
    """Returns the memory in bytes that the host and the control groups allow.

    Example:
        >>> tfpipe.host.ram_bytes() > 2**28
        True
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(whole, limits().memory_bytes or whole)


def ram_left() -> int:
    """Returns the bytes of memory that the process can still get, page cache included.

    The result is the smaller of two numbers: the memory that the kernel calls available
    (proc(5)), and the memory left in the control groups of the process.

    Example:
        >>> 0 < tfpipe.host.ram_left() <= tfpipe.host.ram_bytes()
        True
    """
    left = [
        int(line.split()[1]) * 1024
        for line in _lines(_MEMORY)
        if line.startswith("MemAvailable:")
    ]
    in_groups = limits().memory_left
    return min([*left, *([] if in_groups is None else [in_groups])], default=1 << 62)


def limits(*, root: pathlib.Path = pathlib.Path("/")) -> Limits:
    """Returns the least limits of all control groups that hold this process.

    The groups are those of /proc/self/cgroup at the mounts of /proc/self/mountinfo
    (kernel: cgroup-v1/memory.rst, sched-bwc.rst, cgroup-v2.rst).

    | version | cores                               | memory                |
    |---------|-------------------------------------|-----------------------|
    | 1       | cpu.cfs_quota_us, cpu.cfs_period_us | memory.limit_in_bytes |
    | 2       | cpu.max                             | memory.max            |

    Args:
        root: Folder in place of /, for tests.

    Example:
        >>> tfpipe.host.limits().cores is None or tfpipe.host.limits().cores > 0
        True
    """
    cores, sizes, left = [], [], []
    for kind, folder in _folders(root):
        cores += _cores(kind, folder)
        for size, used in _memory(kind, folder):
            sizes.append(size)
            left.append(size - used)
    return Limits(
        min(cores, default=None), min(sizes, default=None), min(left, default=None)
    )


def _folders(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields the version and the folder of each group that holds the process.

    A container may see its own group as the root of the mount, while the name of the
    group is that of the host. Its folder is then not there, and the mount's root is.
    """
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        top, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind not in _GROUP_MEMORY:
            continue
        controllers = set(options.split(",")) if kind == "cgroup" else {""}
        for _, names, path in groups:
            if not controllers & (set(names.split(",")) if names else {""}):
                continue
            base = root / mount.lstrip("/")
            folder = base / path.removeprefix(top).lstrip("/")
            for group in (folder, *folder.parents):
                yield kind, group
                if group == base:
                    break


def _cores(kind: str, folder: pathlib.Path) -> list[float]:
    """Returns the quota of a group in cores; [] without a quota."""
    if kind == "cgroup2":
        words = [word for line in _lines(folder / "cpu.max") for word in line.split()]
    else:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [line for name in names for line in _lines(folder / name)]
    if len(words) != 2 or words[0] in ("max", "-1"):
        return []
    return [int(words[0]) / int(words[1])]


def _memory(kind: str, folder: pathlib.Path) -> list[tuple[int, int]]:
    """Returns the limit of a group and the use that stays; [] without a limit."""
    limit_name, use_name, cache_name = _GROUP_MEMORY[kind]
    limit, use = _lines(folder / limit_name), _lines(folder / use_name)
    if not limit or not use or limit == ["max"] or int(limit[0]) >= _NO_LIMIT:
        return []
    stat = dict(line.split() for line in _lines(folder / "memory.stat"))
    return [(int(limit[0]), int(use[0]) - int(stat.get(cache_name, 0)))]


def _lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

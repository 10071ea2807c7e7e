"""The host: the cores, memory and processor for a process, and its checkout.

In: files of the kernel in /proc and /sys, git, and the C library. Out: numbers, and
names. Imports no TensorFlow.
"""

import ctypes
import os
import pathlib

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
_GIT_SECONDS = 10.0
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
# Parameters of mallopt(3): their numbers in malloc.h, and values.
_MALLOC_PARAMETERS = {
    "M_MMAP_THRESHOLD": (-3, 1 << 30),
    "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1),
    "M_TOP_PAD": (-2, 64 << 20),
}


def num_cores() -> int:
    """Returns the number of cores that affinity and cgroup quota allow the process."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return cores if quota is None else min(cores, quota)


def cpu_quota() -> int | None:
    """Returns the cores that the processes of the control group may use together.

    The number is the quota of a control group of version 2 (kernel: cgroup-v2.rst,
    cpu.max), rounded down, at least 1. None means no quota.

    Example:
        >>> quota = tfpipe.host.cpu_quota()
        >>> quota is None or quota >= 1
        True
    """
    for line in _lines(pathlib.Path("/sys/fs/cgroup/cpu.max")):
        quota, period = line.split()
        if quota != "max":
            return max(1, int(quota) // int(period))
    return None


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
    """Returns the memory of the host in bytes.

    Example:
        >>> tfpipe.host.ram_bytes() > 2**28
        True
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def ram_left() -> int:
    """Returns the bytes of memory that the process can still get, page cache included.

    The result is the smallest of two kinds of numbers: the memory that the kernel calls
    available, and the memory left in the control groups of the process (kernel:
    proc(5), cgroup-v2.rst and cgroup-v1/memory.rst).

    Example:
        >>> 0 < tfpipe.host.ram_left() <= tfpipe.host.ram_bytes()
        True
    """
    fields = _fields(pathlib.Path("/proc/meminfo"))
    left = [fields["MemAvailable:"] * 1024] if "MemAvailable:" in fields else []
    root = pathlib.Path("/sys/fs/cgroup")
    for line in _lines(pathlib.Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "file")
        elif "memory" in controllers.split(","):
            base = root / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
        else:
            continue
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            left += _left_of_group(group, *names)
            if group == base:
                break
    return min(left, default=1 << 62)


def _left_of_group(
    folder: pathlib.Path, limit_name: str, usage_name: str, cache_name: str
) -> list[int]:
    limit, usage = _lines(folder / limit_name), _lines(folder / usage_name)
    if not limit or not usage or limit == ["max"]:
        return []
    cache = _fields(folder / "memory.stat").get(cache_name, 0)
    return [int(limit[0]) - int(usage[0]) + cache]


def _fields(path: pathlib.Path) -> dict[str, int]:
    return {line.split()[0]: int(line.split()[1]) for line in _lines(path)}


def _lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

"""Storage beneath a path: a mount, a device, and the memory behind them.

In: /proc/self/mounts and /sys. Out: the type of the file system, and `Beneath`: whether
memory is the storage, and the cache beneath the page cache. The kernel does not tell of
caches in disks, servers and hypervisors.
"""

import dataclasses
import os
import pathlib

import psutil

_DEVICES = pathlib.Path("/sys/dev/block")
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
# File systems whose files are on another machine.
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p"),
    *("virtiofs", "afs", "wekafs", "pvfs2", "orangefs"),
}
_MEMORY_DEVICES = ("zram", "ram")
_MOST_LAYERS = 8  # a loop device on a loop device, and so on


@dataclasses.dataclass(frozen=True)
class Beneath:
    """The storage of a file, if known; `text` is memory or a cache beneath, or ""."""

    is_memory: bool = False
    text: str = ""

    @property
    def caveat(self) -> str:
        """A sentence on memory that may have given the bytes, or ""."""
        if self.is_memory:
            return f"The files are in memory: {self.text}."
        means = "Cold means: not in this page cache. Bytes may have come from"
        return f"{means} {self.text}." if self.text else ""


def mount_point(path: str | os.PathLike[str]) -> str:
    """Returns the folder at which the file system of a path is mounted."""
    folder = os.path.realpath(path)
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return folder


def filesystem(path: str | os.PathLike[str]) -> str:
    """Returns the type of the file system of a path, such as "ext4"; "" if unknown."""
    return _mount(path)[1]


def is_remote(kind: str) -> bool:
    """Returns whether a file system may have files on other machines, as FUSE may."""
    return kind in _NETWORK or _is_fuse(kind)


def beneath(path: str | os.PathLike[str]) -> Beneath:
    """Returns the storage beneath a file or a folder."""
    return _beneath_path(path, _MOST_LAYERS)


def _mount(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns source and type of the file system of a path; "" where unknown."""
    point, mounted = mount_point(path), psutil.disk_partitions(all=True)
    kinds = [(m.device, m.fstype) for m in mounted if m.mountpoint == point]
    return kinds[-1] if kinds else ("", "")  # the last mount hides the others


def _is_fuse(kind: str) -> bool:
    return kind.split(".")[0] in ("fuse", "fuseblk")


def _beneath_path(path: str | os.PathLike[str], layers: int) -> Beneath:
    source, kind = _mount(path)
    if kind in IN_MEMORY:
        return Beneath(True, kind)
    if kind == "zfs":
        return Beneath(text="the cache of ZFS in memory (ARC)")
    if _is_fuse(kind):
        return Beneath(text=f"the program behind {kind}, from any cache of its own")
    if kind in _NETWORK:
        return Beneath(text=f"the memory of the {kind} server")
    device_id = os.stat(path).st_dev
    if not os.major(device_id):  # btrfs and others have no device number of their own
        device_id = os.stat(source).st_rdev if os.path.exists(source) else 0
    device = _DEVICES / f"{os.major(device_id)}:{os.minor(device_id)}"
    if not device_id or not device.exists():
        return Beneath(text=f"a cache beneath {kind or 'an unknown file system'}")
    return _beneath_device(device.resolve(), layers)


def _beneath_device(device: pathlib.Path, layers: int) -> Beneath:
    """Returns the storage beneath a device, a folder of sysfs."""
    name = device.name
    if name.rstrip("0123456789") in _MEMORY_DEVICES:
        return Beneath(True, name)
    if (device / "partition").exists():
        return _beneath_device(device.parent, layers)
    loop = device / "loop/backing_file"
    if loop.exists():
        return _beneath_loop(device, loop.read_text().rstrip("\n"), layers)
    slaves = sorted((device / "slaves").glob("*")) if layers else []
    parts = [_beneath_device(slave.resolve(), layers - 1) for slave in slaves]
    worst = max(parts, key=lambda part: (part.is_memory, part.text), default=Beneath())
    return dataclasses.replace(
        worst, text=f"{name} on {worst.text}" if worst.text else ""
    )


def _beneath_loop(device: pathlib.Path, file: str, layers: int) -> Beneath:
    name = f"the loop device {device.name}"
    try:
        below = _beneath_path(file, layers - 1) if layers else Beneath(text="more")
    except OSError:  # the file is deleted, or in another mount namespace
        return Beneath(text=f"{name} on a file that cannot be seen")
    if below.is_memory or below.text:
        return Beneath(below.is_memory, f"{name} on {below.text}")
    direct = device / "loop/dio"
    if direct.exists() and direct.read_text().strip() == "1":
        return Beneath()
    return Beneath(text=f"the page cache of the file beneath {name}")

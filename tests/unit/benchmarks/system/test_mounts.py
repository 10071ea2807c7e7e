"""benchmarks.system.mounts: what lies beneath a path, in made-up trees of sysfs."""

import os
import pathlib
import types

import pytest

from benchmarks.system import mounts
from benchmarks.system.mounts import Beneath

MOUNTS = {
    ("/dev/vda", "/", "ext4"),
    ("tmpfs", "/dev/shm", "tmpfs"),
    ("server:/set", "/mnt/my data", "nfs4"),
}
TWICE = (("/dev/old", "/mnt/twice", "xfs"), ("overlay", "/mnt/twice", "overlay"))


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("/", "ext4"),
        ("/dev/shm", "tmpfs"),
        ("/mnt/my data", "nfs4"),
        ("/mnt/twice", "overlay"),
        ("/mnt", ""),
    ],
)
def test_the_type_of_a_mount(point, expected, monkeypatch):
    mounted = [
        types.SimpleNamespace(device=device, mountpoint=at, fstype=kind)
        for device, at, kind in (*MOUNTS, *TWICE)
    ]
    monkeypatch.setattr(mounts.psutil, "disk_partitions", lambda all: mounted)
    monkeypatch.setattr(mounts, "mount_point", str)

    assert mounts.filesystem(point) == expected


def test_a_mount_point_is_above_what_is_on_it():
    assert mounts.mount_point("/proc/self/io") == "/proc"
    assert mounts.filesystem("/proc/self/io") == "proc"


def _device(
    sysfs: pathlib.Path, name: str, *, loop: str = "", slaves: str = ""
) -> None:
    """Makes a device; a loop device has "FILE" or "FILE direct"."""
    folder = sysfs / name
    folder.mkdir()
    if loop:
        file, _, direct = loop.partition(" ")
        (folder / "loop").mkdir()
        (folder / "loop/backing_file").write_text(f"{file}\n")
        (folder / "loop/dio").write_text("1\n" if direct else "0\n")
    (folder / "slaves").mkdir()
    for slave in slaves.split():
        (folder / "slaves" / slave).symlink_to(sysfs / slave)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("sda", Beneath()),
        ("sda1", Beneath()),
        ("zram0", Beneath(True, "zram0")),
        ("ram3", Beneath(True, "ram3")),
        ("dm-0", Beneath()),
        ("dm-1", Beneath(True, "dm-1 on zram0")),
        ("loop0", Beneath(True, "the loop device loop0 on tmpfs")),
        (
            "loop1",
            Beneath(text="the page cache of the file beneath the loop device loop1"),
        ),
        ("loop2", Beneath()),  # goes around the page cache
        ("loop3", Beneath(text="the loop device loop3 on a file that cannot be seen")),
        ("dm-2", Beneath(True, "dm-2 on the loop device loop0 on tmpfs")),
    ],
)
def test_what_lies_beneath_a_device(device, expected, tmp_path, monkeypatch):
    sysfs, disk = tmp_path / "block", tmp_path / "file"
    sysfs.mkdir()
    disk.write_bytes(b"")
    for name in ("sda", "zram0", "ram3"):
        _device(sysfs, name)
    (sysfs / "sda/sda1").mkdir()
    (sysfs / "sda/sda1/partition").write_text("1\n")
    (sysfs / "sda1").symlink_to(sysfs / "sda/sda1")
    _device(sysfs, "dm-0", slaves="sda")
    _device(sysfs, "dm-1", slaves="sda zram0")
    _device(sysfs, "loop0", loop="/dev/shm")
    _device(sysfs, "loop1", loop=str(disk))
    _device(sysfs, "loop2", loop=f"{disk} direct")
    _device(sysfs, "loop3", loop="/gone/image (deleted)")
    _device(sysfs, "dm-2", slaves="loop0 sda")
    kinds = {"/dev/shm": ("tmpfs", "tmpfs"), str(disk): ("/dev/sda", "ext4")}
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    data = tmp_path / "data"
    data.mkdir()
    number = os.stat(data).st_dev
    target = numbers / f"{os.major(number)}:{os.minor(number)}"
    target.symlink_to(sysfs / device)
    monkeypatch.setattr(mounts, "_DEVICES", numbers)
    real = mounts._beneath_path

    def path_beneath(path, layers):
        if str(path) == str(disk):
            return Beneath()  # on a disk
        return real(path, layers)

    monkeypatch.setattr(mounts, "_beneath_path", path_beneath)
    monkeypatch.setattr(
        mounts, "_mount", lambda path: kinds.get(str(path), ("/dev/x", "ext4"))
    )

    assert real(data, 8) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tmpfs", Beneath(True, "tmpfs")),
        ("zfs", Beneath(text="the cache of ZFS in memory (ARC)")),
        ("nfs4", Beneath(text="the memory of the nfs4 server")),
        (
            "fuse.sshfs",
            Beneath(text="the program behind fuse.sshfs, from any cache of its own"),
        ),
        ("overlay", Beneath(text="a cache beneath overlay")),
        ("", Beneath(text="a cache beneath an unknown file system")),
    ],
)
def test_what_lies_beneath_a_file_system(kind, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "_mount", lambda _: ("none", kind))
    monkeypatch.setattr(mounts, "_DEVICES", tmp_path)  # no device is known

    assert mounts.beneath(tmp_path) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ext4", False), ("nfs4", True), ("fuse.juicefs", True), ("fuseblk", True)],
)
def test_files_on_other_machines(kind, expected):
    assert mounts.is_remote(kind) is expected

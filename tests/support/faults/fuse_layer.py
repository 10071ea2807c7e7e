"""A file system that loses power, tears writes and reads short, over a real folder.

In: a folder, a mount point, and a fault. Out: a mount of the folder, in a process of
its own, and after the mount the folder as the fault left it.

| fault | effect                                                                     |
|-------|----------------------------------------------------------------------------|
| cut   | from a chosen change on each call fails, as on a machine without power.    |
|       | Changes of folders after the last fsync are undone from a random one on;   |
|       | bytes of a file after its own last fsync are lost, zeros, or kept          |
| torn  | a chosen write stores a half of its bytes; the call fails with ENOSPC      |
| short | a read returns fewer bytes than there are, at random                       |
| none  | none; the process counts changes and writes                                |

Needs the package mfusepy, fuse3 and /dev/fuse.
"""

import contextlib
import dataclasses
import errno
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

if importlib.util.find_spec("mfusepy"):
    import mfusepy
else:
    mfusepy = None

_START_SECONDS = 30.0
# Attributes of the mount, set as messages: a sync(2), of which FUSE says nothing, and
# the end.
SYNC, END = "user.sync", "user.end"
_FACTS = ("mode", "nlink", "size", "uid", "gid", "ino", "blocks")
_TIMES = ("atime", "mtime", "ctime")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of the layer; `at` counts changes, or writes for "torn", from 1."""

    kind: Literal["cut", "torn", "short", "none"] = "none"
    at: int = 0
    seed: int = 0


def why_not() -> str | None:
    """Returns why nothing can be mounted on this machine, or None if it can."""
    if mfusepy is None:
        return "mfusepy is not installed: pip install mfusepy"
    return None if os.path.exists("/dev/fuse") else "there is no /dev/fuse"


@contextlib.contextmanager
def mounted(
    folder: pathlib.Path, mount: pathlib.Path, fault: Fault
) -> Iterator[dict[str, int]]:
    """Mounts a folder while the block lasts.

    Yields:
        A dict that has, after the block, the number of changes and of writes.
    """
    counts: dict[str, int] = {}
    report = mount.with_name(f"{mount.name}-counts.json")
    mount.mkdir(exist_ok=True)
    text = json.dumps(dataclasses.asdict(fault))
    words = [sys.executable, "-m", __name__, *map(str, (folder, mount, report)), text]
    with subprocess.Popen(words) as process:
        try:
            end = time.monotonic() + _START_SECONDS
            while not os.path.ismount(mount):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            yield counts
        finally:
            # Other mount namespaces may keep the mount, and so the process.
            os.setxattr(mount, END, b"")
            unmount = ["fusermount3", "-u", "-z", str(mount)]
            subprocess.run(unmount, check=True)
            process.kill()  # a SIGTERM before a read of FUSE is lost
    counts.update(json.loads(report.read_text()))


class _Changes:
    """Changes of a folder that a loss of power undoes.

    Args:
        root: The folder.
        trash: An empty folder beside it, for what was removed.
    """

    def __init__(self, root: str, trash: pathlib.Path) -> None:
        self.root, self.trash = root, trash
        self.undo: list[Callable[[], object]] = []
        # The inode of a file with bytes that are not on the disk -> the bytes before.
        self.dirty: dict[int, int] = {}

    def keep(self, path: str) -> pathlib.Path | None:
        """Keeps a file that is about to be removed."""
        if not os.path.lexists(path):
            return None
        kept = self.trash / f"{time.monotonic_ns()}-{len(self.undo)}"
        os.link(path, kept, follow_symlinks=False)
        return kept

    def sync(self, inode: int | None = None) -> None:
        """Brings all changes of folders, and the bytes of a file, to the disk."""
        self.undo.clear()
        if inode is not None:
            self.dirty.pop(inode, None)

    def sync_all(self) -> None:
        """Brings all changes and bytes to the disk."""
        self.undo.clear()
        self.dirty.clear()

    def lose(self, dice: random.Random) -> None:
        """Does to the folder what a loss of power does."""
        for undo in reversed(self.undo[dice.randint(0, len(self.undo)) :]):
            undo()
        for folder, _, names in os.walk(self.root):
            for name in sorted(names):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                if (synced := self.dirty.get(status.st_ino)) is not None:
                    end = dice.choice((synced, dice.randint(synced, status.st_size)))
                    if dice.random() < 0.7:
                        os.truncate(path, end)
                    if dice.random() < 0.5:  # sizes reach the disk before the bytes
                        os.truncate(path, status.st_size)


class Layer(mfusepy.Operations if mfusepy else object):  # type: ignore[misc]
    """The calls of the mount; each is that of the folder, with the fault."""

    use_ns = True

    def __init__(self, root: str, report: pathlib.Path, fault: Fault) -> None:
        self.root, self._report, self._fault = root, report, fault
        trash = pathlib.Path(f"{root}.trash")
        trash.mkdir(exist_ok=True)
        self._changes = _Changes(root, trash)
        self._dice = random.Random(fault.seed)
        self._counts = {"changes": 0, "writes": 0}
        self._is_dead = False

    def _real(self, path: str) -> str:
        if self._is_dead:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.root + path

    def _changed(self) -> None:
        self._counts["changes"] += 1
        if self._fault.kind == "cut" and self._counts["changes"] >= self._fault.at > 0:
            self._is_dead = True
        self._real("")

    def _to_undo(self, undo: Callable[[], object]) -> int:
        self._changes.undo.append(undo)
        return 0

    def _touched(self, status: os.stat_result) -> None:
        self._changes.dirty.setdefault(status.st_ino, status.st_size)

    def _end(self) -> None:
        self._report.write_text(json.dumps(self._counts))
        if self._fault.kind == "cut":
            self._changes.lose(self._dice)

    # Calls that change nothing.

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        real = self._real(path)
        status = os.lstat(real) if fh is None else os.fstat(fh)
        facts = {f"st_{name}": getattr(status, f"st_{name}") for name in _FACTS}
        return facts | {f"st_{t}": getattr(status, f"st_{t}_ns") for t in _TIMES}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags & ~os.O_APPEND)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._real(path)
        data = os.pread(fh, size, offset)
        if self._fault.kind == "short" and data and self._dice.random() < 0.7:
            return data[: self._dice.randint(1, len(data))]
        return data

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(self._real(path))
        return {k: getattr(status, k) for k in dir(status) if k.startswith("f_b")}

    # Calls that change files or folders.

    def create(self, path: str, mode: int, flags: int) -> int:
        self._changed()
        real = self._real(path)
        opened = os.open(real, flags & ~os.O_APPEND | os.O_CREAT, mode)
        self._to_undo(lambda: os.unlink(real))
        self._changes.dirty[os.fstat(opened).st_ino] = 0
        return opened

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._changed()
        self._touched(os.fstat(fh))
        self._counts["writes"] += 1
        if self._fault.kind == "torn" and self._counts["writes"] == self._fault.at:
            os.pwrite(fh, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._changed()
        real = self._real(path)
        self._touched(os.lstat(real) if fh is None else os.fstat(fh))
        os.truncate(real if fh is None else fh, length)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._changed()
        self._changes.sync(os.fstat(fh).st_ino)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._changed()
        self._changes.sync()
        return 0

    def setxattr(
        self, path: str, name: str, value: bytes, options: int, position: int = 0
    ) -> int:
        """Takes a message."""
        if name == END:
            self._end()
        elif name == SYNC:
            self._changed()
            self._changes.sync_all()
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._changed()
        real = self._real(path)
        os.mkdir(real, mode)
        return self._to_undo(lambda: os.rmdir(real))

    def rmdir(self, path: str) -> int:
        self._changed()
        real = self._real(path)
        os.rmdir(real)
        return self._to_undo(lambda: os.mkdir(real))

    def unlink(self, path: str) -> int:
        self._changed()
        real = self._real(path)
        kept = self._changes.keep(real)
        os.unlink(real)
        assert kept is not None
        return self._to_undo(lambda: os.rename(kept, real))

    def rename(self, old: str, new: str) -> int:
        self._changed()
        before, after = self._real(old), self._real(new)
        is_file = not os.path.isdir(after)
        kept = self._changes.keep(after) if is_file else None
        os.rename(before, after)

        def undo() -> None:
            os.rename(after, before)
            if kept is not None:
                os.rename(kept, after)

        return self._to_undo(undo)

    def link(self, target: str, source: str) -> int:
        self._changed()
        real = self._real(target)
        os.link(self._real(source), real)
        return self._to_undo(lambda: os.unlink(real))

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._real(path), ns=times)
        return 0


def main(root: str, mount: str, report: str, fault: str) -> None:
    """Serves the mount until it ends."""
    made = Fault(**json.loads(fault))
    layer = Layer(root, pathlib.Path(report), made)
    mfusepy.FUSE(
        layer,
        mount,
        foreground=True,
        nothreads=True,
        hard_remove=True,
        direct_io=made.kind == "short",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

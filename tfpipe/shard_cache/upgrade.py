"""Shard caches of version 1, which tfpipe 0.1.0 filled, become caches of version 2.

In: the stores of a cache, under the lock of its directory. Out: the same stores with
the same pieces. Version 1 had no count of bytes before the marks, and other files of
users. A kill leaves some stores of either version; the next call does the rest.
"""

import errno
import pathlib
import shutil
from collections.abc import Sequence

import numpy as np

from tfpipe.location import atomic
from tfpipe.shard_cache import store as stores
from tfpipe.shard_cache.users import Users
from tfpipe.shards import arrays

VERSION = "tfpipe shard cache 1"


def upgrade(folders: Sequence[pathlib.Path]) -> bool:
    """Upgrades the stores of a cache; a store that is not whole is removed.

    Returns:
        False if a process of the earlier version uses a store; nothing is changed.

    Raises:
        OSError: If the disk fails.
    """
    users = (folder / "users" for folder in folders)
    if any(path.is_dir() and Users(path, 0).are_there() for path in users):
        return False
    for folder in folders:
        try:
            _upgrade(folder)
        except stores.NOT_WHOLE as error:
            if isinstance(error, OSError) and error.errno != errno.ENOENT:
                raise
            shutil.rmtree(folder)
    return True


def _upgrade(folder: pathlib.Path) -> None:
    for path in (folder / "users").iterdir():
        path.unlink()
    layout = arrays.read((folder / "layout.npy").read_bytes())[""]
    num_pieces = layout.shape[1]
    marks = (folder / "marks").read_bytes()
    if len(marks) == max(num_pieces, 1):
        count = np.zeros(1, np.int64).tobytes()
        atomic.write(folder / "marks", count + marks[:num_pieces], fsync=False)
    stores.PieceStore(folder).recount()

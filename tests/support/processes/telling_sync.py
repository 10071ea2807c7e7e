"""Runs a module, and tells a mount of `fuse_layer` of each sync(2).

`python -m tests.support.processes.telling_sync MOUNT MODULE ARGUMENTS`: the kernel
tells FUSE of an fsync alone, so an attribute of the mount is set after each sync(2).
"""

import contextlib
import os
import runpy
import sys

from tests.support.faults.fuse_layer import SYNC


def main(mount: str, module: str, *words: str) -> None:
    """Runs the module as `python -m` does."""
    sync = os.sync

    def told() -> None:
        sync()
        with contextlib.suppress(OSError):  # sync(2) has no errors
            os.setxattr(mount, SYNC, b"")

    os.sync = told
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Files in memory that stand in for local files of shards where there is no room.

In: pieces of shards. Out: paths at which they are at their byte offsets. Imports no
TensorFlow.
"""

import os


class MemoryFiles:
    """Files in memory, one a shard; holes take no memory. They end with `close`."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def add(self, shard: int, offset: int, content: bytes) -> None:
        """Puts bytes at a byte offset of a shard."""
        if shard not in self._descriptors:
            self._descriptors[shard] = os.memfd_create(f"shard {shard}")
        left = memoryview(content)
        while left:
            count = os.pwrite(self._descriptors[shard], left, offset)
            left, offset = left[count:], offset + count

    def path(self, shard: int) -> str:
        """Returns a path at which this process can open the file of a shard."""
        return f"/proc/self/fd/{self._descriptors[shard]}"

    def close(self) -> None:
        """Frees the memory once no reader has a file open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

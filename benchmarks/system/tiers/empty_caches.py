"""Shard caches that begin empty, for cold runs.

In: the place of the data. Out: the source of a rank with an empty cache, again and
again. The caches are in a folder of their own, so that a cold run removes nothing that
another run has fetched.
"""

import atexit
import dataclasses
import pathlib
import shutil
import uuid
from typing import Any

from benchmarks.distributed.ranks import Ranks
from benchmarks.system.tiers.place import DataPlace


class EmptyCaches:
    """Gives the ranks of a host one empty shard cache after the other.

    Every rank calls each method, and all ranks call it together. Each cache is removed
    when the next one is made, and the last one when the process ends.

    Args:
        place: The data set, and the folder of its shard caches.
        ranks: All ranks.
    """

    def __init__(self, place: DataPlace, ranks: Ranks) -> None:
        self._place, self._is_first = place, ranks.local_rank == 0
        (name, *_) = ranks.gather(f"cold-{uuid.uuid4().hex}")
        self._folder = pathlib.Path(str(place.shard_cache_dir), name)
        self._number = 0
        self._source: Any = None
        if self._is_first:
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def directory(self) -> pathlib.Path:
        """Folder of the newest cache."""
        return self._folder / str(self._number)

    def renew(self, source: Any) -> Any:
        """Returns a source with a new, empty cache; readers of the last one must stop.

        Args:
            source: The `TFRecordSource` of this rank.
        """
        self.close()
        if self._is_first:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._number += 1
        cache = self._place.shard_cache(self.directory)
        self._source = dataclasses.replace(source, shard_cache=cache)
        return self._source

    def close(self) -> None:
        """Ends the fetching into the newest cache."""
        if self._source is not None:
            self._source.close_cache()
            self._source = None

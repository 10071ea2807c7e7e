"""A forked process does not write into the segment of its parent."""

import os

from tests.unit.tfpipe.cache.test_store import expected, get, open_store, put


def test_forked_process_writes_a_segment_of_its_own(tmp_path):
    kept = open_store(tmp_path)
    put(kept, 1)
    if (child := os.fork()) == 0:
        put(kept, 2)
        os._exit(0)
    os.waitpid(child, 0)
    put(kept, 3)

    assert get(kept, 1, 2, 3) == expected(1, 2, 3)

"""Others cut, flip and remove the files of a cache at any moment of a run.

A thread harms the cache again and again while a pipeline fills and reads the cache for
several epochs. All batches are those of an untouched cache, and no record is a fault.
"""

import contextlib
import itertools
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.torture import IS_LONG, rounds
from tests.unit.tfpipe.reading.test_caches_heal import (
    DISK_CACHE,
    SHARD_CACHE,
    _small_pieces,  # noqa: F401
    through_shard_cache,
)
from tests.unit.tfpipe.reading.test_read_ahead import SMALL, assert_equal

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs it: 20 minutes")

NUM_EPOCHS = 3
Harm = Callable[[pathlib.Path], object]


@contextlib.contextmanager
def harmed(folder: pathlib.Path, table: dict[str, Harm], seed: int) -> Iterator[None]:
    """Harms a folder at random moments until the end of the block."""
    choices, ended = random.Random(seed), threading.Event()

    def harm() -> None:
        while not ended.wait(choices.uniform(0.0, 0.02)):
            # The job changes the same files meanwhile.
            with contextlib.suppress(OSError):
                choices.choice(list(table.values()))(folder)

    thread = threading.Thread(target=harm)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def read(pipeline: tfpipe.Pipeline) -> list[dict[str, object]]:
    batches = []
    for batch in pipeline.build(num_epochs=NUM_EPOCHS).as_numpy_iterator():
        batches.append(batch)
        time.sleep(0.002)  # more moments for harm
    return batches


def require_same(
    make: Callable[[pathlib.Path], tfpipe.Pipeline],
    table: dict[str, Harm],
    folder: pathlib.Path,
) -> int:
    """Reads through harmed caches; returns the number of harmed caches."""
    expected = read(make(folder / "untouched"))
    num_rounds = rounds(few=2, many=200)
    for seed in range(num_rounds):
        harmed_folder = folder / f"harmed-{seed}"
        pipeline = make(harmed_folder)
        with harmed(harmed_folder, table, seed):
            batches = read(pipeline)
        assert_equal(batches, expected)
        assert pipeline.faults.faults == []
    return num_rounds


@needs_native
@pytest.mark.parametrize("reading", ["native", "tensorflow"])
def test_a_shard_cache(data_dir, tmp_path, record_property, reading):
    def make(folder):
        return through_shard_cache(data_dir, folder, reading)

    record_property("injections", require_same(make, SHARD_CACHE, tmp_path))


def test_a_cache_on_disk(data_dir, tmp_path, record_property):
    def make(folder):
        return tfpipe.imagenet_train(
            data_dir,
            cache=tfpipe.Cache("disk", folder),
            with_record_id=True,
            **{key: SMALL[key] for key in ("image_size", "batch_size")},
        )

    record_property("injections", require_same(make, DISK_CACHE, tmp_path))


def test_each_round_harms(tmp_path):
    file = tmp_path / "0123456789" / "shards" / "train-0"
    seen = set()

    def harm(folder: pathlib.Path) -> None:
        seen.add(folder)

    with harmed(file, {"x": harm}, 0):
        for _ in itertools.takewhile(lambda _: not seen, itertools.count()):
            time.sleep(0.001)
    assert seen == {file}

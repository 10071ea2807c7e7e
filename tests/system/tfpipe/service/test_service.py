"""Service on a real dispatcher and real workers, of which some are killed."""

import concurrent.futures
import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from tests.support.data.trees import convert, make_tree
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython
from tests.support.servers import service_processes
from tests.support.servers.service_processes import ServiceProcesses

NUM_RECORDS = 200
BATCH = 4


@pytest.fixture(scope="module")
def many_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data set with enough windows for two workers."""
    folder = tmp_path_factory.mktemp("many")
    raw = make_tree(
        folder / "raw", num_images=NUM_RECORDS, num_validation_images=2 * BATCH + 1
    )
    convert(raw, folder / "records", num_train_shards=3, num_validation_shards=2)
    return folder / "records"


@pytest.fixture(scope="module")
def service(
    warm_python: WarmPython, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcesses]:
    folder = tmp_path_factory.mktemp("work_dir")
    with service_processes.running(warm_python, folder, 2) as running:
        yield running


def _source(data_dir: pathlib.Path | str, split: str = "train", **fields: Any) -> Any:
    fields = {"window_size": 16, "block_length": 4, "batch_size": BATCH} | fields
    return tfpipe.TFRecordSource(data_dir, split, **fields)


def _train(
    data_dir: pathlib.Path | str,
    *,
    whole_batches: Any = "auto",
    image_size: int = 16,
    **fields: Any,
) -> tfpipe.Pipeline:
    return tfpipe.imagenet_train(
        _source(data_dir, **fields),
        image_size=image_size,
        dtype="float32",
        with_record_id=True,
        whole_batches=whole_batches,
    )


def _with_service(
    pipeline: tfpipe.Pipeline, service: ServiceProcesses, place: int | None = None
) -> tfpipe.Pipeline:
    """Returns the pipeline with the service before its stage `place`, or at its end."""
    stages = [*pipeline.stages]
    stages.insert(len(stages) if place is None else place, _stage(service.address))
    return dataclasses.replace(pipeline, stages=stages)


def _stage(address: str) -> tfpipe.Service:
    return tfpipe.Service(address)


def _epochs(
    pipeline: tfpipe.Pipeline,
    num_epochs: int = 1,
    act: Callable[[], object] = lambda: None,
    act_after: int = 10,
    **arguments: Any,
) -> list[list[int]]:
    """Returns the records of each epoch; calls `act` after some batches."""
    batches = []
    for number, batch in enumerate(pipeline.build(num_epochs=num_epochs, **arguments)):
        if number == act_after:
            act()
        batches.append(batch["record_id"].numpy().tolist())
    size = len(batches) // num_epochs
    return [_flat(batches[size * epoch :][:size]) for epoch in range(num_epochs)]


def _flat(batches: list[list[int]]) -> list[int]:
    return [*itertools.chain.from_iterable(batches)]


def _rows(dataset: tf.data.Dataset) -> dict[int, tuple[int, bytes]]:
    """Returns label, mask and pixels of each real record, by its number."""
    rows = {}
    for batch in dataset.as_numpy_iterator():
        masks = batch.get("mask", np.ones(BATCH))
        for number, row in enumerate(batch["record_id"].tolist()):
            if masks[number]:
                label = int(batch["label"][number])
                rows[row] = label, batch["image"][number].tobytes()
    return rows


@pytest.mark.parametrize("place", [None, 3])
def test_elements_are_those_without_the_service(
    service: ServiceProcesses, many_dir: pathlib.Path, place: int | None
) -> None:
    """Place 3 is before Batch: examples travel, not batches."""
    plain = _train(many_dir, seed=3, whole_batches=False if place else "auto")

    dataset = _with_service(plain, service, place).build(epoch=2)

    assert _rows(dataset) == _rows(plain.build(epoch=2))
    assert dataset.cardinality() == NUM_RECORDS // BATCH


def test_an_evaluation_has_each_record_once_and_the_mask(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    source = _source(many_dir, "validation", remainder="pad", shuffle="none")
    plain = tfpipe.imagenet_eval(source, image_size=16, with_record_id=True)

    made = list(_with_service(plain, service).build())

    masks = np.concatenate([batch["mask"] for batch in made])
    assert (len(made), masks.sum()) == (3, 2 * BATCH + 1)
    rows = [row for b in made for row in b["record_id"][b["mask"] == 1].numpy()]
    assert sorted(rows) == [*range(2 * BATCH + 1)]


def test_copies_of_sampling_have_seeds_of_their_own(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    sampling = tfpipe.Sampling(record_weights=np.arange(NUM_RECORDS))
    plain = _train(many_dir, sampling=sampling)

    def pixels(pipeline: tfpipe.Pipeline) -> list[bytes]:
        batches = pipeline.build().as_numpy_iterator()
        return sorted(image.tobytes() for batch in batches for image in batch["image"])

    made = pixels(_with_service(plain, service))

    assert made == pixels(plain)
    assert len(set(made)) == len(made)


def _of_rank(
    ranks: Ranks,
    data_dir: pathlib.Path,
    address: str,
    lost_after_s: float | None = 60.0,
) -> tuple[list[list[int]], int]:
    plain = _train(data_dir, rank=ranks.rank, num_ranks=ranks.num_ranks, seed=1)
    stages = [*plain.stages, tfpipe.Service(address, lost_after_s=lost_after_s)]
    pipeline = dataclasses.replace(plain, stages=stages)
    return _epochs(pipeline, num_epochs=3), pipeline.source.steps_per_epoch


_LOST_AFTER_S = 3.0


def _error_of_rank(
    ranks: Ranks, data_dir: pathlib.Path, address: str, folder: pathlib.Path
) -> tuple[float, str]:
    """Returns the seconds of an epoch after a batch, and how the epoch fails.

    The rank makes a file in a folder after its first batch, and waits for "killed".
    """
    places = {"rank": ranks.rank, "num_ranks": ranks.num_ranks}
    plain = _train(data_dir, image_size=512, **places)
    stages = [*plain.stages, tfpipe.Service(address, lost_after_s=_LOST_AFTER_S)]
    pipeline = dataclasses.replace(plain, stages=stages)

    def meet() -> None:
        (folder / str(ranks.rank)).touch()
        _wait_for(folder / "killed")

    begun = time.monotonic()
    try:
        _epochs(pipeline, act=meet, act_after=1)
    except tf.errors.OpError as error:
        return time.monotonic() - begun, error.message
    return time.monotonic() - begun, ""


def _wait_for(path: pathlib.Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)


def test_two_ranks_share_two_workers(
    service: ServiceProcesses, rank_pool: RankPool, many_dir: pathlib.Path
) -> None:
    """Each record comes once an epoch, and each epoch has an order of its own."""
    (first, steps), (second, _) = rank_pool.run(_of_rank, many_dir, service.address)

    for mine, others in zip(first, second, strict=True):
        assert len(mine) == len(others) == steps * BATCH
        assert sorted(mine + others) == list(range(NUM_RECORDS))
    assert first[0] != first[1] != first[2]
    assert set(first[0]) != set(first[1]), "the ranks have other records each epoch"


def test_a_resumed_run_has_the_records_that_are_left(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    plain = _train(many_dir, seed=5)
    # Step 7 is in the middle of a window.
    state = plain.source.advance(tfpipe.State(epoch=4), 7)

    (made,) = _epochs(_with_service(plain, service), state=state)

    assert sorted(made) == sorted(_epochs(plain, state=state)[0])
    assert len(made) == NUM_RECORDS - 7 * BATCH


def test_each_iteration_for_keras_is_the_next_epoch(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    plain = _train(many_dir)
    dataset = _with_service(plain, service)._built(tfpipe.State(), 1, is_continued=True)

    labels = [[b["record_id"].numpy().tolist() for b in dataset] for _ in range(2)]

    assert [sorted(_flat(epoch)) for epoch in labels] == [[*range(NUM_RECORDS)]] * 2
    assert labels[0] != labels[1]


def test_a_killed_worker_that_comes_back_loses_and_repeats_nothing(
    service: ServiceProcesses,
    many_dir: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def kill_and_start() -> None:
        port = service.kill_worker()
        service.wait_for_line(f"The worker at 127.0.0.1:{port} has not answered for")
        service.start_worker(port)
        service.wait_for_line(f"The worker at 127.0.0.1:{port} answers again")

    # A worker that is killed may have sent all of its records already: less often if
    # they are large.
    for _ in range(10):
        served = _with_service(_train(many_dir, image_size=512), service)
        made = _epochs(served, num_epochs=2, act=kill_and_start, act_after=1)
        assert [sorted(epoch) for epoch in made] == [list(range(NUM_RECORDS))] * 2
        if "of 200 records." in capfd.readouterr().err:
            return
    pytest.fail("no killed worker left a record behind")


def _told_of_a_lost_worker(
    service: ServiceProcesses,
    rank_pool: RankPool,
    data_dir: pathlib.Path,
    folder: pathlib.Path,
) -> tuple[int, list[tuple[float, str]]]:
    """Kills a worker in an epoch of two ranks; returns its port, and their words."""

    def kill() -> int:
        for rank in range(2):
            _wait_for(folder / str(rank))
        port = service.kill_worker()
        (folder / "killed").touch()
        return port

    folder.mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        killed = pool.submit(kill)
        told = rank_pool.run(_error_of_rank, data_dir, service.address, folder)
    service.start_worker(killed.result())
    return killed.result(), told


def test_a_killed_worker_that_stays_away_is_an_error_on_every_rank(
    service: ServiceProcesses,
    rank_pool: RankPool,
    many_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    """Each rank names the worker, and the service is whole again afterwards.

    A worker that had none of the records of a rank is not missed by the rank.
    """
    for number in range(10):
        folder = tmp_path / str(number)
        port, told = _told_of_a_lost_worker(service, rank_pool, many_dir, folder)
        for seconds, message in told:
            if message:
                named = f"no answer came from the worker at 127.0.0.1:{port}."
                assert named in message
                assert f"The tf.data service at {service.address} has given" in message
                assert _LOST_AFTER_S <= seconds < 20 * _LOST_AFTER_S
        if all(message for _, message in told):
            break
    else:
        pytest.fail("no killed worker had records of both ranks")
    (epoch,) = _epochs(_with_service(_train(many_dir), service))
    assert sorted(epoch) == [*range(NUM_RECORDS)], "the service is whole again"


@pytest.mark.parametrize("lost_after_s", [60.0, None])
def test_ranks_with_all_records_do_not_wait_for_a_lost_worker(
    service: ServiceProcesses,
    rank_pool: RankPool,
    many_dir: pathlib.Path,
    lost_after_s: float | None,
) -> None:
    """The dispatcher knows the dead worker, and waits for it."""
    port = service.kill_worker()
    try:
        made = rank_pool.run(_of_rank, many_dir, service.address, lost_after_s)
    finally:
        service.start_worker(port)

    for mine, others in zip(*(epochs for epochs, _ in made), strict=True):
        assert sorted(mine + others) == list(range(NUM_RECORDS))


def test_a_run_that_leaves_an_epoch_does_not_wait(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    dataset = _with_service(_train(many_dir), service).build(num_epochs=None)

    for _ in zip(dataset, range(3), strict=False):
        pass
    assert len(list(dataset.take(3))) == 3


def test_a_killed_dispatcher_goes_on_when_it_is_started_again(
    service: ServiceProcesses, many_dir: pathlib.Path
) -> None:
    made = _epochs(
        _with_service(_train(many_dir, seed=8), service),
        num_epochs=2,
        act=service.restart_dispatcher,
    )

    assert [sorted(epoch) for epoch in made] == [list(range(NUM_RECORDS))] * 2


def test_workers_read_a_data_set_by_its_url(
    warm_python: WarmPython,
    many_dir: pathlib.Path,
    s3_folder: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trainer fetches the index alone."""
    monkeypatch.setenv("TFPIPE_SHARD_CACHE", str(tmp_path / "cache"))
    files = tfpipe.Files(s3_folder)
    for path in many_dir.iterdir():
        if path.is_file():
            files.upload(path.name, path)
    pipeline = _train(s3_folder, seed=3)
    more = (f"--data_dir={s3_folder}", "--store_time_limit=30")

    with service_processes.running(warm_python, tmp_path, 1, more) as service:
        made = _rows(_with_service(pipeline, service).build(epoch=2))

    assert made == _rows(_train(many_dir, seed=3).build(epoch=2))
    assert pipeline.source.cache_statistics().bytes_from_server == 0


def test_a_damaged_record_is_an_error(
    service: ServiceProcesses, copy_dir: pathlib.Path
) -> None:
    plain = _train(copy_dir)
    path, offset = plain.source.locate(3)
    with open(path, "r+b") as shard:
        shard.seek(offset + 40)
        shard.write(b"\xff\x00\xff")

    with pytest.raises(tf.errors.InvalidArgumentError, match="verify names damaged"):
        _epochs(_with_service(plain, service))


def test_nobody_at_the_address_is_an_error_at_once(many_dir: pathlib.Path) -> None:
    pipeline = _train(many_dir)
    address = f"127.0.0.1:{service_processes.free_port()}"
    stages = [*pipeline.stages, _stage(address)]
    begun = time.monotonic()

    with pytest.raises(ConnectionError, match=f"must answer at {address}"):
        dataclasses.replace(pipeline, stages=stages).build()

    assert time.monotonic() - begun < 60

import collections
import concurrent.futures
import dataclasses
import shutil
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.cached import DECODE, Note, as_list, make, noted
from tests.support.faults.damage import NUM_TRAIN, flip, places, spoil_jpeg
from tests.unit.tfpipe.cache.test_store import fail_segments
from tfpipe import host


def ids(dataset):
    return [example["record_id"] for example in as_list(dataset)]


@pytest.fixture
def cache(tmp_path):
    return tfpipe.Cache("disk", tmp_path / "caches")


@pytest.fixture(params=["ram", "disk"])
def each_cache(request, cache):
    return tfpipe.Cache("ram") if request.param == "ram" else cache


UPSTREAM = {
    "records": [],
    "two maps": [tfpipe.Map(DECODE[0]), tfpipe.Prefetch(), tfpipe.Map(DECODE[1])],
    "selected": [tfpipe.Map(*DECODE, tfpipe.Select("image", "record_id"))],
}


@pytest.fixture(scope="module")
def uncached(data_dir):
    """The structure and the elements of two epochs without a cache."""
    datasets = {
        name: make(data_dir, *stages, batch_size=4).build(num_epochs=2)
        for name, stages in UPSTREAM.items()
    }
    return {name: (made.element_spec, as_list(made)) for name, made in datasets.items()}


@pytest.mark.parametrize(
    ("where", "names"), [("disk", ["records", "selected"]), ("ram", ["two maps"])]
)
def test_elements_are_those_without_it(data_dir, tmp_path, uncached, where, names):
    """Also of two pipelines that have one cache."""
    cache = tfpipe.Cache(where, tmp_path if where == "disk" else None)
    for name in names:
        cached = make(data_dir, *UPSTREAM[name], cache, batch_size=4)
        dataset = cached.build(num_epochs=2)

        assert (dataset.element_spec, as_list(dataset)) == uncached[name]


def test_order_and_seeds_of_a_rank_are_those_without_it(data_dir, cache):
    source = {
        "rank": 2,
        "num_ranks": 3,
        "batch_size": 5,
        "shuffle": "full",
        "remainder": "pad",
    }
    before = [tfpipe.Map(DECODE[0]), tfpipe.AssertCardinality()]
    plain = make(data_dir, *before, tfpipe.Batch(5), **source).build(num_epochs=3)

    cached = make(data_dir, *before, cache, tfpipe.Batch(5), **source)
    dataset = cached.build(num_epochs=3)

    assert dataset.cardinality() == plain.cardinality()
    assert as_list(dataset) == as_list(plain)


def test_random_ops_after_it_draw_anew_each_epoch(data_dir, cache):
    pipeline = make(data_dir, tfpipe.Map(*DECODE), cache, tfpipe.Map(tfpipe.Flip()))
    by_record = collections.defaultdict(list)

    for example in as_list(pipeline.build(num_epochs=6)):
        by_record[example["record_id"]].append(str(example["image"]))

    assert all(len(set(images)) == 2 for images in by_record.values())


def test_disk_outlives_the_cache(data_dir, tmp_path, capfd):
    note = Note(str(tmp_path / "calls"))

    for epoch in range(2):
        cache = tfpipe.Cache("disk", tmp_path / "caches")
        as_list(make(data_dir, tfpipe.Map(DECODE[0], note), cache).build(epoch=epoch))

    assert sorted(noted(note.path)) == list(range(24))
    assert "cache: 24 of 24 records there, in " in capfd.readouterr().err
    (folder,) = (tmp_path / "caches").glob("?" * 32)
    assert (folder / "complete").exists()
    assert cache.describe() == f"cache: 24 of 24 records there, in {folder}"


def test_damaged_rows_are_made_again_and_said_once(data_dir, tmp_path, capfd):
    cache = tfpipe.Cache("disk", tmp_path)
    pipeline = make(data_dir, tfpipe.Map(*DECODE), cache, batch_size=4)
    first = as_list(pipeline.build())
    for path in tmp_path.glob("*/*.numbers"):
        flip(path, path.stat().st_size // 2)
        flip(path, 0)
    capfd.readouterr()

    assert as_list(pipeline.build()) == first
    assert as_list(pipeline.build()) == first
    assert capfd.readouterr().err.count("rows with other bytes than were stored") == 1


def test_run_that_goes_on_within_an_epoch_gets_the_same(data_dir, cache, tmp_path):
    note = Note(str(tmp_path / "calls"))
    stages = [
        tfpipe.Map(DECODE[0], tfpipe.Select("label", "mask", "record_id", "seed")),
        tfpipe.Batch(2),
    ]
    plain = make(data_dir, *stages, batch_size=2)
    cached = make(
        data_dir,
        tfpipe.Map(
            DECODE[0], tfpipe.Select("label", "mask", "record_id", "seed"), note
        ),
        cache,
        stages[-1],
        batch_size=2,
    )
    whole = as_list(plain.build(num_epochs=2))

    assert as_list(cached.build(start_step=9, num_epochs=2)) == whole[9:]
    state = cached.source.advance(tfpipe.State(), 5)
    assert as_list(cached.build(state=state)) == whole[5:12]
    assert sorted(noted(note.path)) == list(range(24))


def test_second_epoch_hits_what_another_rank_kept(data_dir, tmp_path):
    note = Note(str(tmp_path / "calls"))
    pipelines = [
        make(
            data_dir,
            tfpipe.Map(DECODE[0], note),
            tfpipe.Cache("disk", tmp_path / "caches"),
            rank=rank,
            num_ranks=2,
        )
        for rank in range(2)
    ]

    first_epoch = [ids(pipeline.build()) for pipeline in pipelines]
    second_epoch = ids(pipelines[0].build(epoch=1))

    assert set(first_epoch[0]) != set(second_epoch)
    assert sorted(noted(note.path)) == list(range(24))


def test_only_what_is_missing_is_made(data_dir, cache, tmp_path):
    """With "drop", an epoch leaves out other records than the one before."""
    note = Note(str(tmp_path / "calls"))
    pipeline = make(data_dir, tfpipe.Map(DECODE[0], note), cache, batch_size=7)

    seen = ids(pipeline.build(num_epochs=4))

    assert len(noted(note.path)) == len(set(noted(note.path)))
    assert set(seen) <= set(noted(note.path))


def test_damaged_records_are_stood_in_for_as_without_it(copy_dir, cache):
    damage(copy_dir, [2, 3, 13])
    logs = [tfpipe.FaultLog(3), tfpipe.FaultLog(3)]
    plain, cached = (
        make(
            copy_dir,
            tfpipe.Map(DECODE[0]),
            *caches,
            interleave=tfpipe.Interleave(faults=log),
        )
        for log, caches in zip(logs, [[], [cache]], strict=True)
    )

    assert as_list(cached.build(num_epochs=3)) == as_list(plain.build(num_epochs=3))
    assert [fault.record_id for fault in logs[1].faults] == [2, 3, 13]


def test_damaged_record_is_an_error_in_each_epoch(copy_dir, cache):
    damage(copy_dir, [13])
    pipeline = make(copy_dir, cache)

    for epoch in range(2):
        with pytest.raises(tf.errors.OpError, match="record 13 of the split"):
            as_list(pipeline.build(epoch=epoch))


def damage(folder, numbers):
    """Gives the data of some records a wrong CRC."""
    for number in numbers:
        path, offset, _, _ = places(folder)[number]
        flip(path, offset + 40, mask=1)


@dataclasses.dataclass(frozen=True)
class Noise:
    """An op with random numbers that are TensorFlow's own."""

    def __call__(self, example):
        noise = tf.random.uniform([])
        return example | {"label": example["label"] + tf.cast(noise, tf.int32)}


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [tfpipe.Map(DECODE[0], tfpipe.RandomCrop(image_size=8))],
            r"before the first random op, got it after RandomCrop\(",
        ),
        (
            [tfpipe.Map(*DECODE), tfpipe.Map(tfpipe.Normalize(), tfpipe.Flip())],
            r"before the first random op, got it after Flip\(\)",
        ),
        ([tfpipe.Map(*DECODE, tfpipe.Reseed(tfpipe.Flip(), 1))], "after Reseed"),
        (
            [tfpipe.Map(DECODE[0], lambda e: e | {"x": tf.reduce_sum(e["seed"])})],
            "before the first random op",
        ),
        ([tfpipe.Map(DECODE[0], Noise())], "Noise.., which uses RandomUniform"),
        ([tfpipe.Map(*DECODE), tfpipe.Batch(2)], r"got Batch\(.*Move it after Cache"),
        ([tfpipe.Shuffle(5)], r"got Shuffle\("),
        ([tfpipe.Map(DECODE[0], tfpipe.Select("label"))], "must get record_id"),
        (
            [
                tfpipe.Map(
                    DECODE[0], lambda e: e | {"x": tf.io.decode_jpeg(e["encoded"])}
                )
            ],
            "fixed shape, or one string; got x",
        ),
        ([tfpipe.Cache("ram")], r"got Cache\("),
    ],
)
def test_what_cannot_be_kept_is_refused_before_any_work(
    data_dir, cache, tmp_path, stages, message
):
    pipeline = make(data_dir, *stages, cache, batch_size=2)

    with pytest.raises(ValueError, match=message):
        pipeline.build()

    assert not (tmp_path / "caches").exists()


def test_cache_before_interleave_is_refused(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train")

    with pytest.raises(ValueError, match="must come after Interleave"):
        tfpipe.Pipeline(source, [tfpipe.Cache("ram"), tfpipe.Interleave()]).build()


def test_cache_of_another_source_is_refused():
    source = tfpipe.SyntheticSource(batch_size=2)

    with pytest.raises(ValueError, match="needs a TFRecordSource, got Synthetic"):
        tfpipe.Pipeline(source, [tfpipe.Cache("ram")]).build()


def test_op_that_does_not_tell_what_it_does_is_refused_on_disk(data_dir, tmp_path):
    stages = [tfpipe.Map(DECODE[0], lambda example: example)]

    make(data_dir, *stages, tfpipe.Cache("ram")).build()
    with pytest.raises(ValueError, match=r"<lambda>.*Write it as a frozen dataclass"):
        make(data_dir, *stages, tfpipe.Cache("disk", tmp_path)).build()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tape",), "must be one of ram, disk, got 'tape'"),
        (("disk",), "needs a directory"),
        (("ram", "/tmp"), "none for \"ram\", got 'ram' and '/tmp'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.Cache(*arguments)


@pytest.mark.parametrize("name", ["max_bytes", "num_parallel_reads"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .* >= 1 or None, got 0"):
        tfpipe.Cache("ram", **{name: 0})


def test_too_small_max_bytes_is_refused(data_dir, each_cache):
    cache = dataclasses.replace(each_cache, max_bytes=1000)

    with pytest.raises(ValueError, match=r"max_bytes must be >= \d+ for .* got 1000"):
        make(data_dir, tfpipe.Map(*DECODE), cache).build()


def test_too_little_memory_is_refused(data_dir, monkeypatch):
    monkeypatch.setattr(host, "ram_left", lambda: 1000)

    with pytest.raises(ValueError, match=r"needs \d+ bytes of memory.* are 1000"):
        make(data_dir, tfpipe.Map(*DECODE), tfpipe.Cache("ram")).build()


@dataclasses.dataclass(frozen=True)
class Add:
    """An op with an argument."""

    value: int = 0

    def __call__(self, example):
        return example | {"label": example["label"] + self.value}


def fingerprint(data_dir, directory, *ops, split="train", **options):
    """The folder that a cache after these ops has."""
    source = tfpipe.TFRecordSource(data_dir, split, **options)
    spec = {"image": tf.TensorSpec([8, 8, 3], tf.uint8)}
    return tfpipe.Cache("disk", directory)._open(source, ops, spec).folder.name


@dataclasses.dataclass(frozen=True, eq=False)
class Weigh:
    """An op that holds an array of more elements than its repr shows."""

    weights: np.ndarray

    def __call__(self, example):
        return example | {"label": example["label"] + self.weights.argmax()}


PRINTED_ALIKE = [Weigh(np.arange(5000) == position) for position in (2000, 2001)]


def test_other_data_or_other_ops_have_a_folder_of_their_own(data_dir, tmp_path):
    same = [
        fingerprint(data_dir, tmp_path, *DECODE),
        fingerprint(data_dir, tmp_path, *DECODE, seed=8, batch_size=3, rank=0),
        fingerprint(data_dir, tmp_path, *DECODE, shuffle="full", window_size=9),
    ]
    others = [
        fingerprint(data_dir, tmp_path, *DECODE, Add(1)),
        fingerprint(data_dir, tmp_path, *DECODE, Add(2)),
        *(fingerprint(data_dir, tmp_path, op) for op in PRINTED_ALIKE),
        fingerprint(data_dir, tmp_path, DECODE[0]),
        fingerprint(data_dir, tmp_path, *DECODE, split="validation"),
    ]

    assert len(set(same)) == 1
    assert len({*same, *others}) == 7


def test_ops_that_print_alike_do_not_share_a_cache(data_dir):
    """Their folders differ too, see above."""
    first, second = (tfpipe.Map(DECODE[0], op) for op in PRINTED_ALIKE)
    cache = tfpipe.Cache("ram")
    assert repr(first) == repr(second)

    given, other = (as_list(make(data_dir, m, cache).build()) for m in (first, second))

    assert other == [e | {"label": e["label"] + 1} for e in given]


def test_threads_fill_one_cache_of_strings_at_the_same_time(data_dir, cache):
    """Each brings records that another one has brought meanwhile."""
    pipeline = make(data_dir, cache)
    datasets = [pipeline.build(epoch=epoch) for epoch in range(2)]
    plain = as_list(make(data_dir).build(num_epochs=2))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert [*pool.map(as_list, datasets)] == [plain[:NUM_TRAIN], plain[NUM_TRAIN:]]


def test_cache_that_met_damage_is_complete_and_takes_what_was_repaired(
    data_dir, copy_dir, tmp_path, cache
):
    damage(copy_dir, [2, 13])

    def read():
        log = tfpipe.FaultLog(2)
        interleave = tfpipe.Interleave(faults=log)
        pipeline = make(copy_dir, tfpipe.Map(DECODE[0]), cache, interleave=interleave)
        elements = as_list(pipeline.build())
        return elements, [fault.record_id for fault in log.faults]

    for _ in range(2):
        elements, told = read()
        assert told == [2, 13]
        assert sum(example["mask"] for example in elements) == 22
    (folder,) = (tmp_path / "caches").glob("?" * 32)
    assert (folder / "complete").exists()

    shutil.copytree(data_dir, copy_dir, dirs_exist_ok=True)
    assert read() == (as_list(make(data_dir, tfpipe.Map(DECODE[0])).build()), [])


def test_a_disk_that_fails_is_named_and_no_record_is_damaged(
    data_dir, cache, monkeypatch
):
    pipeline = make(data_dir, cache)
    fail_segments(monkeypatch, "EIO")

    said = r"Input/output error.*segment"
    with pytest.raises(tf.errors.OpError, match=said) as caught:
        as_list(pipeline.build())

    assert "damaged" not in str(caught.value)
    assert "converters.verify" not in str(caught.value)


def test_prefix_and_text_of_a_pipeline_with_a_cache(data_dir, tmp_path):
    pipeline = make(
        data_dir, tfpipe.Cache("disk", "D", max_bytes=5), tfpipe.Map(DECODE[0])
    )

    assert str(pipeline).splitlines()[2] == (
        " 2 Cache(where='disk', directory='D', max_bytes=5, num_parallel_reads=4)"
    )
    assert len(list(pipeline.prefix(1).build())) == 24


def test_closed_cache_gives_memory_back_and_can_be_opened_again(
    data_dir, each_cache, tmp_path
):
    note = Note(str(tmp_path / "calls"))
    pipeline = make(data_dir, tfpipe.Map(*DECODE, note), each_cache)
    dataset = pipeline.build()
    before = as_list(dataset)
    # The stages before the cache see each record once.
    assert as_list(dataset) == before
    assert sorted(noted(note.path)) == list(range(24))
    ((kept, _),) = each_cache._stores.values()
    columns = [weakref.ref(column) for column in kept._columns[:1]]

    each_cache.close()

    assert [column() for column in columns] == [None]
    assert each_cache.describe() == "cache: not open"
    with pytest.raises(tf.errors.OpError):
        as_list(dataset)
    assert as_list(pipeline.build()) == before


def test_sound_records_come_once_an_epoch_beside_a_full_cache(data_dir, tmp_path):
    """Every eighth record cannot be decoded; the cache keeps decoded images."""
    folder = shutil.copytree(data_dir, tmp_path / "data")
    bad = [*range(0, NUM_TRAIN, 8)]
    for number in bad:
        spoil_jpeg(folder, number)
    directory = tmp_path / "caches"
    for _ in range(2):
        pipeline = counting(folder, tfpipe.Cache("disk", directory), window_size=5)

        elements = as_list(pipeline.build(num_epochs=2))

        counts = collections.Counter(e["record_id"] for e in elements if e["mask"])
        assert counts == {n: 2 for n in range(NUM_TRAIN) if n not in bad}
        assert [fault.record_id for fault in pipeline.faults.faults] == bad
        (kept,) = directory.glob("?" * 32)
        assert (kept / "complete").exists()


def test_window_without_a_sound_record_is_replaced_beside_a_cache(data_dir, tmp_path):
    folder = shutil.copytree(data_dir, tmp_path / "data")
    for number in range(6):
        spoil_jpeg(folder, number)
    for path, offset, size, _ in places(folder)[6:8]:
        flip(path, offset + size // 2)

    pipeline = counting(folder, tfpipe.Cache("ram"), window_size=4)
    elements = as_list(pipeline.build(num_epochs=2))

    assert [int(e["mask"]) for e in elements] == [*[0] * 8, *[1] * 16] * 2
    assert {e["record_id"] for e in elements[:8]} == {8}


def counting(folder, cache, **options):
    """A pipeline with a cache of images, which counts every damaged record."""
    options |= {"remainder": "pad", "shuffle": "none"}
    source = tfpipe.TFRecordSource(folder, "train", **options)
    log = tfpipe.FaultLog(NUM_TRAIN, locate=source.locate)
    stages = [tfpipe.Interleave(faults=log), tfpipe.Map(*DECODE, faults=log), cache]
    return tfpipe.Pipeline(source, stages)

"""Caches and faults never change the elements: random pipelines, each built twice.

Each pipeline is read with a cache and without, over the same damaged copy of a data
set. Every real element must be equal and in its place; stand-ins and padding must be
masked in both. TFPIPE_EXAMPLES=1000 tries that many random pipelines, different ones
each time.
"""

import os
import shutil
import tempfile

import hypothesis
import hypothesis.strategies as st
import numpy as np

import tfpipe
from tests.support.faults.damage import NUM_TRAIN, flip, places, spoil_jpeg
from tests.support.faults.torture import rounds

PARSE = tfpipe.Parse(label_base=1, as_converted=True)
CENTER = tfpipe.CenterCrop(image_size=8, fraction=1.0, crop_op="stock")
RANDOM = tfpipe.RandomCrop(image_size=8, crop_op="stock")
NORMALIZE = tfpipe.Normalize()
HOT = tfpipe.OneHot(4)

# Maps before the cache, and maps after it.
OPS = [
    ([], [[PARSE, CENTER]]),
    ([], [[PARSE], [RANDOM, tfpipe.Flip()]]),
    ([[PARSE]], [[RANDOM]]),
    ([[PARSE, CENTER]], [[tfpipe.Flip(), NORMALIZE]]),
    ([[PARSE], [CENTER, HOT]], []),
    ([[PARSE, CENTER, tfpipe.Select("image", "mask", "record_id")]], [[NORMALIZE]]),
    ([[PARSE, CENTER, tfpipe.Select("image", "record_id", "seed")]], [[tfpipe.Flip()]]),
]
BATCHED = [[PARSE], [PARSE, CENTER], [PARSE, RANDOM]]


@st.composite
def sources(draw):
    num_ranks = draw(st.integers(1, 3))
    return {
        "num_ranks": num_ranks,
        "rank": draw(st.integers(0, num_ranks - 1)),
        "batch_size": draw(st.integers(1, 7)),
        "shuffle": draw(st.sampled_from(["none", "window", "full"])),
        "remainder": draw(st.sampled_from(["drop", "pad"])),
        "window_size": draw(st.integers(1, 30)),
        "block_length": draw(st.integers(1, 5)),
        "seed": draw(st.integers(0, 9)),
    }


# A few records here and there, or most of the split.
damages = st.dictionaries(
    st.integers(0, NUM_TRAIN - 1),
    st.sampled_from(["crc", "header", "decode"]),
    max_size=5,
) | st.fixed_dictionaries(
    {number: st.sampled_from(["crc", "decode"]) for number in range(0, NUM_TRAIN, 2)},
    optional={number: st.just("decode") for number in range(1, NUM_TRAIN - 1, 2)},
)


def damage(folder, kinds):
    found = places(folder)
    for number, kind in kinds.items():
        path, offset, size, _ = found[number]
        if kind == "decode":
            spoil_jpeg(folder, number)
        else:
            flip(path, offset + (0 if kind == "header" else size // 2))


def make(folder, options, ops, *, cache, batched, stages):
    """The pipeline of a random case, its cache left out if it is None."""
    source = tfpipe.TFRecordSource(folder, "train", **options)
    log = tfpipe.FaultLog(NUM_TRAIN, locate=source.locate)
    before, after = (
        [tfpipe.Map(*map_ops, faults=log) for map_ops in maps] for maps in ops
    )
    batch = tfpipe.Batch(source.batch_size)
    return tfpipe.Pipeline(
        source,
        [
            tfpipe.Interleave(faults=log),
            *before,
            *([cache] if cache else []),
            *stages,
            *([batch, *after] if batched else [*after, batch]),
        ],
    )


def delivered(pipeline, runs):
    """The elements of several runs, one after the other."""
    return [
        {name: value[i] for name, value in batch.items()}
        for run in runs
        for batch in pipeline.build(**run).as_numpy_iterator()
        for i in range(len(batch["record_id"]))
    ]


def check_same(sound, plain, cached, bad):
    """Compares elements in their places; `sound` are those of undamaged data."""
    assert len(sound) == len(plain) == len(cached)
    for wanted, one, other in zip(sound, plain, cached, strict=True):
        assert one.keys() == other.keys()
        assert not {int(one["record_id"]), int(other["record_id"])} & bad
        is_real = bool(wanted["is_real"]) and int(wanted["record_id"]) not in bad
        for element in (one, other):
            assert element.get("mask", is_real) == is_real
            assert not is_real or element["record_id"] == wanted["record_id"]
        if is_real:
            for name, value in one.items():
                np.testing.assert_array_equal(value, other[name])


@hypothesis.settings(
    max_examples=int(os.environ.get("TFPIPE_EXAMPLES", rounds(few=2, many=100))),
    derandomize="TFPIPE_EXAMPLES" not in os.environ,
    deadline=None,
    # A smaller case costs many more: each takes seconds.
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.example(
    options={"remainder": "pad", "shuffle": "none", "window_size": 4, "batch_size": 5},
    ops=OPS[3],
    where="disk",
    kinds={0: "decode", 1: "crc", 2: "decode", 3: "header", 23: "decode"},
    batched=False,
    stages=[],
    start_step=2,
    num_epochs=2,
)
@hypothesis.given(
    options=sources(),
    ops=st.sampled_from(OPS),
    where=st.sampled_from(["ram", "disk"]),
    kinds=damages,
    batched=st.booleans(),
    stages=st.sampled_from(
        [[], [tfpipe.AssertCardinality()], [tfpipe.Prefetch()], [tfpipe.Shuffle(4)]]
    ),
    start_step=st.integers(0, 4),
    num_epochs=st.integers(1, 3),
)
def test_caches_and_faults_never_change_what_is_delivered(
    data_dir,
    options,
    ops,
    where,
    kinds,
    batched,
    stages,
    start_step,
    num_epochs,
):
    batched = batched and ops[1] in [[one] for one in BATCHED]
    with tempfile.TemporaryDirectory() as temporary:
        folder = shutil.copytree(data_dir, f"{temporary}/data", dirs_exist_ok=True)
        folder = type(data_dir)(folder)
        damage(folder, kinds)
        cache = tfpipe.Cache(where, f"{temporary}/caches" if where == "disk" else None)
        case = {"batched": batched, "stages": stages}
        plain = make(folder, options, ops, cache=None, **case)
        cached = make(folder, options, ops, cache=cache, **case)
        start_step = min(start_step, plain.source.steps_per_epoch)
        runs = [
            {"start_step": start_step, "num_epochs": num_epochs},
            {"epoch": 1},
        ]

        case |= {"batched": False}
        sound = make(data_dir, options, ([], []), cache=None, **case)
        elements = [delivered(p, runs) for p in (sound, plain, cached)]
        check_same(*elements, {*kinds})

        # A damaged record is told of by both, where it was read. Without a cache, a
        # window without a sound record also tries records of other ranks as stand-ins.
        told = {fault.record_id for fault in cached.faults.faults}
        of_plain = {fault.record_id for fault in plain.faults.faults}
        of_rank = {int(each["record_id"]) for each in elements[0] if each["is_real"]}
        assert of_plain & of_rank <= told <= {*kinds}
        assert of_plain <= {*kinds}
        cache.close()

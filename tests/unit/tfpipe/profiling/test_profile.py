"""tfpipe.profiling.profile: predictions, sentences and tables of made-up figures."""

import dataclasses
import json
import math

import pytest

import tfpipe
from tests.support.data.artificial import cost_of, made_profile
from tfpipe.profiling.host_share import HostShare
from tfpipe.profiling.limits import Host
from tfpipe.profiling.profile import StorageRead

FIGURES = [
    cost_of(0, 0, kind="serial"),
    cost_of(1, 5, calls=2, share=0.25),
    cost_of(2, 15, calls=2, share=0.75),
    cost_of(3, 0, kind="buffered"),
]


@pytest.mark.parametrize(
    ("tuning", "rate"),
    [
        # The two cores could give 100, and gave 90.
        ({}, 90),
        ({"num_parallel_maps": 1}, 1 / 0.015),
        ({"num_parallel_maps": (1, 2)}, 90),
        ({"private_threadpool_size": 1}, 50),
        ({"prefetch_buffer_size": 9}, 90),
    ],
)
def test_rate_of_another_tuning_is_predicted(tuning, rate):
    predicted = made_profile(*FIGURES).predict(tfpipe.Tuning(**tuning))

    assert predicted == pytest.approx(rate)


def test_sentence_says_what_to_change_and_what_comes_next():
    storage = StorageRead(
        bytes_per_output=1e6, bytes_per_second=5e8, device_fraction=math.nan
    )

    found = made_profile(*FIGURES, storage=storage).bottleneck

    assert (found.resource, found.stage, found.rate) == ("CPU", 2, pytest.approx(100))
    assert found.sentence == (
        "stage2 takes 75% of the CPU, which allows 1,000 examples/s: 8 more cores "
        "would give 5,000 examples/s, where storage at 500 MB/s (as given) is the "
        "next limit."
    )


@pytest.mark.parametrize(
    ("values", "resource", "text"),
    [
        (
            {
                "storage": StorageRead(
                    bytes_per_output=1e6, bytes_per_second=5e7, device_fraction=1.0
                )
            },
            "storage",
            "storage at 50 MB/s (cold) allows 500 examples/s: cache the records",
        ),
        (
            {"consumer_seconds": 0.1},
            "consumer",
            "the CPU with 2 cores allows 1,000 examples/s",
        ),
        (
            {"ram_left_bytes": -1},
            "memory",
            "of memory are left: make its buffer shorter",
        ),
    ],
)
def test_other_limits_than_the_stages_are_named(values, resource, text):
    found = made_profile(*FIGURES, **values).bottleneck

    assert found.resource == resource
    assert text in found.sentence


def test_profile_prints_a_line_a_stage_and_goes_into_json():
    result = made_profile(*FIGURES)

    lines = str(result).splitlines()
    values = json.loads(json.dumps(result.as_json(), allow_nan=False))

    assert [line.split()[1] for line in lines[1:5]] == [
        f"stage{number}" for number in range(4)
    ]
    assert lines[-1] == result.bottleneck.sentence
    assert values["stages"][2]["cpu_seconds_per_output"] == 0.015
    assert values["bottleneck"]["resource"] == "CPU"
    assert values["bound_outputs_per_second"] == pytest.approx(100)
    assert "pipeline" not in values


@pytest.mark.parametrize(
    ("costs", "copied", "resource", "stage", "text"),
    [
        pytest.param(
            [cost_of(0, 0), cost_of(1, 9, calls=2, share=0.9), cost_of(2, 1, calls=2)],
            math.inf,
            "CPU",
            1,
            "takes 90% of the CPU",
            id="busy CPU",
        ),
        pytest.param(
            [cost_of(0, 0), cost_of(1, 1, calls=2), cost_of(2, 0, wait=50, calls=2)],
            math.inf,
            "latency",
            2,
            "elements at a time, with as many threads in Tuning",
            id="waiting",
        ),
        pytest.param(
            [
                cost_of(0, 0, kind="serial"),
                cost_of(1, 1, calls=2),
                cost_of(2, 1, wait=50, kind="serial"),
            ],
            math.inf,
            "latency",
            2,
            "put a Prefetch before it",
            id="waiting in a plain function",
        ),
        pytest.param(
            [cost_of(0, 0), cost_of(1, 1, calls=2), cost_of(2, 9, calls=1)],
            math.inf,
            "sequential stage",
            2,
            "1 call at a time",
            id="sequential",
        ),
        pytest.param(
            [
                cost_of(0, 0, kind="serial"),
                cost_of(1, 5, kind="serial", bytes_in_per_output=1e7),
            ],
            3e9,
            "memory",
            1,
            "moves 2.0 GB in a CPU-second, a copy on this host 3.0 GB",
            id="copies",
        ),
    ],
)
def test_lowest_limit_is_named(costs, copied, resource, stage, text):
    host = Host(num_cores=2, num_threads=2, copy_bytes_per_second=copied)

    profile = made_profile(*costs, host=host)

    found = profile.bottleneck
    assert (found.resource, found.stage) == (resource, stage), found.sentence
    assert text in found.sentence
    assert found.rate == profile.bound


def test_ops_of_the_stage_that_binds_are_named_together():
    ops = [cost_of(2, 9, name=name, calls=2) for name in ("Parse()", "Flip()")]

    found = made_profile(cost_of(0, 0), cost_of(1, 1, calls=2), *ops).bottleneck

    assert found.stage == 2
    assert "Map(Parse, Flip)" in found.sentence


@pytest.mark.parametrize(
    ("fraction", "state"),
    [(0.0, "warm"), (0.5, "partly warm"), (0.9, "cold"), (math.nan, "as given")],
)
def test_state_of_the_page_cache_is_told(fraction, state):
    storage = StorageRead(
        bytes_per_output=1.0, bytes_per_second=1.0, device_fraction=fraction
    )

    assert storage.state == state


def test_storage_is_a_line_of_the_table_and_no_limit_where_it_is_warm():
    storage = StorageRead(
        bytes_per_output=1e6, bytes_per_second=5e7, device_fraction=1.0
    )
    warm = dataclasses.replace(storage, device_fraction=0.0)

    table = str(made_profile(*FIGURES, storage=storage))
    assert "storage: 1 MB for each output" in table
    limits = made_profile(*FIGURES, storage=warm).limits
    assert "storage" not in {limit.resource for limit in limits}


def test_rates_of_tiny_elements_cannot_be_told():
    tiny = [
        cost_of(0, 0),
        cost_of(1, 5, calls=2, visit_ratio=512.0),
        cost_of(2, 1),
    ]
    profile = made_profile(*tiny)

    one = tfpipe.Tuning(private_threadpool_size=1)
    for tuning in (profile.pipeline.tuning, one, tfpipe.Tuning(num_parallel_maps=2)):
        with pytest.raises(ValueError, match="handing 514 elements from thread"):
            profile.predict(tuning)


@pytest.mark.parametrize(("share", "is_told"), [(0.1, True), (0.5, False)])
def test_rates_of_other_reads_cannot_be_told_where_reading_matters(share, is_told):
    reader = cost_of(1, 5, calls=4, kind="reader", share=share)
    profile = made_profile(cost_of(0, 0), reader, cost_of(2, 5, calls=2, share=0.5))

    doubt = profile.doubt(tfpipe.Tuning(num_parallel_reads=1))

    assert (doubt == "") is is_told
    assert is_told or "measured with 4 reads at a time, not 1" in doubt
    assert profile.doubt(tfpipe.Tuning(num_parallel_maps=2)) == ""


def share_beside(others):
    """The share of two cores of which other processes had so many."""
    return HostShare(
        seconds=1.0,
        num_cores=2,
        own_cores=2,
        others_cpu_seconds=others,
        stolen_seconds=0.0,
    )


def test_rates_of_other_threads_cannot_be_told_where_the_host_was_busy():
    one, two = (tfpipe.Tuning(private_threadpool_size=n) for n in (1, 2))
    for others, said in [
        (0.0, ""),
        (1.5, "busy, with 2 threads of the pipeline, not 1"),
    ]:
        profile = made_profile(*FIGURES, host_share=share_beside(others))

        assert said in profile.doubt(one)
        assert bool(profile.doubt(one)) is bool(said)
        assert profile.doubt(two) == ""


def test_no_rate_can_be_told_where_little_but_reading_is_done():
    reader = cost_of(1, 5, calls=4, kind="reader", share=0.7)
    profile = made_profile(cost_of(0, 0), reader, cost_of(2, 5, calls=2, share=0.3))

    with pytest.raises(ValueError, match="reading takes 70% of the CPU, and copying"):
        profile.predict(tfpipe.Tuning())


@pytest.mark.parametrize(
    ("wait", "others", "said"),
    [
        (4, 0.0, "let it work on 5 elements at a time"),
        (4, 1.5, "let it work on more elements at a time"),  # the host was busy
        # A hundred calls: the costs are not exact enough to say so.
        (100, 0.0, "let it work on more elements at a time"),
    ],
)
def test_no_number_of_calls_is_told_that_the_figures_do_not_bear(wait, others, said):
    costs = [
        cost_of(0, 0, kind="serial"),
        cost_of(1, 1),
        cost_of(2, 0, wait=wait, calls=2),
    ]

    found = made_profile(*costs, host_share=share_beside(others)).bottleneck

    assert said in found.sentence


def test_no_number_of_cores_is_told_that_the_figures_do_not_bear():
    costs = [cost_of(0, 0, kind="serial"), cost_of(1, 0.1), cost_of(2, 40, calls=2)]

    sentence = made_profile(*costs).bottleneck.sentence

    assert "more cores would give more. The next limit is" in sentence

"""tfpipe.profiling.limits: the closed form, from made-up costs."""

import pytest

from tests.support.data.artificial import cost_of
from tfpipe.profiling import limits
from tfpipe.profiling.limits import Host


@pytest.mark.parametrize(
    ("costs", "host", "rate", "resource", "stage"),
    [
        pytest.param(
            [cost_of(0, 1, calls=8), cost_of(1, 9, calls=8)],
            Host(num_cores=4, num_threads=8),
            400,
            "CPU",
            1,
            id="all cores",
        ),
        pytest.param(
            [cost_of(0, 1, calls=8), cost_of(1, 9, calls=2)],
            Host(num_cores=4, num_threads=4),
            222.2,
            "sequential stage",
            1,
            id="too few calls",
        ),
        pytest.param(
            [cost_of(0, 1, kind="serial"), cost_of(1, 9, calls=8)],
            Host(num_cores=16, num_threads=2),
            222.2,
            "CPU",
            1,
            id="too few threads",
        ),
        pytest.param(
            [cost_of(0, 4, kind="serial"), cost_of(1, 6, kind="serial")],
            Host(num_cores=4, num_threads=4),
            100,
            "sequential stage",
            1,
            id="stages in one thread",
        ),
        pytest.param(
            [cost_of(0, 4, kind="buffered"), cost_of(1, 6, kind="serial")],
            Host(num_cores=4, num_threads=4),
            166.7,
            "sequential stage",
            1,
            id="a buffer between them",
        ),
        pytest.param(
            [
                cost_of(0, 4, kind="serial"),
                cost_of(1, 1, calls=4),
                cost_of(2, 6, kind="serial"),
            ],
            Host(num_cores=4, num_threads=4),
            166.7,
            "sequential stage",
            2,
            id="a parallel stage between them",
        ),
        pytest.param(
            [cost_of(0, 1, wait=19, calls=4)],
            Host(num_cores=2, num_threads=16),
            200,
            "latency",
            0,
            id="waiting",
        ),
        pytest.param(
            [cost_of(0, 10, calls=4)],
            Host(num_cores=4, num_threads=4, slowdown=1.25),
            320,
            "CPU",
            0,
            id="slower together",
        ),
    ],
)
def test_least_limit_is_the_closed_form(costs, host, rate, resource, stage):
    least = limits.limits(costs, host)[0]

    assert least.rate == pytest.approx(rate, rel=1e-3)
    assert (least.resource, least.stage) == (resource, stage)


def test_ops_of_a_stage_are_taken_together():
    ops = [cost_of(1, 2, name="Parse()"), cost_of(1, 3, name="Flip()"), cost_of(2, 1)]

    first, second = limits.merged(ops)

    assert first.name == "Map(Parse, Flip)"
    assert first.cpu_seconds_per_output == pytest.approx(5e-3)
    assert second is ops[2]

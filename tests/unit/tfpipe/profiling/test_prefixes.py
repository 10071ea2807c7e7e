"""tfpipe.profiling.prefixes: the rows of a profile."""

import tfpipe
from tests.support.data.artificial import Busy, Numbers
from tfpipe.profiling import prefixes


def test_ops_of_a_map_are_rows_of_their_own():
    pipeline = tfpipe.Pipeline(
        Numbers(), [tfpipe.Map(Busy(1)), tfpipe.Map(Busy(1), Busy(3))]
    )

    rows = prefixes.steps(pipeline, per_op=True)

    assert [row.number for row in rows] == [0, 1, 2, 2]
    assert [row.name for row in rows[2:]] == ["Busy(work=1)", "Busy(work=3)"]


def test_stages_before_a_cache_are_not_run_and_say_why():
    stages = [tfpipe.Map(Busy(1)), tfpipe.Cache("ram"), tfpipe.Prefetch()]

    rows = prefixes.steps(tfpipe.Pipeline(Numbers(), stages))

    assert [row.is_measured for row in rows] == [False, False, True, False]
    assert rows[1].note == "nothing once Cache(where='ram') is full"

"""published_rows: measured rows beside those of the publications."""

import dataclasses
import itertools
import json
from typing import Any

from benchmarks.planning.plan import Sweep
from benchmarks.planning.sweep_run import Repeats
from benchmarks.reporting.charts import sweeps
from benchmarks.results import tree
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweptRow
from benchmarks.sweep import published_row


def _result(rate: float, **more: Any) -> dict[str, Any]:
    return {
        "examples_per_second": rate,
        "consumed_megabytes_per_second": rate / 10,
        "storage_megabytes_per_second": 0.0,
        "accelerator_utilization": 0.98,
        "telemetry": {"host_cpu_fraction": 0.5},
        "config": {"batch_size": 256, "mode": "train", "precision": "float16"},
        "kind": "emulated",
        "environment": {"hosts": [{"name": "a"}, {"name": "b"}]},
        "gates": [{"passed": True}],
        **more,
    }


def _rows(sweep: Sweep, *results: list[dict[str, Any]]) -> list[SweptRow]:
    pairs = itertools.product(sweep.series(), sweep.all_placements())
    rows = [
        published_row(Repeats(series, placement, [Result("", each) for each in own]))
        for (series, placement), own in zip(pairs, results, strict=True)
        if own
    ]
    stored = json.loads(json.dumps([dataclasses.asdict(row) for row in rows]))
    assert [tree.read(SweptRow, row) for row in stored] == rows
    return rows


def _busy(row: SweptRow) -> tuple[float, str]:
    return round(row.accelerator_busy_fraction or 0, 6), row.accelerator_busy_of


def test_rows_have_the_figures_of_the_publications_beside_their_own() -> None:
    sweep = Sweep(
        models=("resnet50", "tiny"),
        ranks=(1, 2),
        repeats=2,
        accelerators=("v100",),
        data_dirs=("d",),
    )
    missed = _result(1200.0, gates=[{"passed": True}, {"passed": False}])
    gpus = {"gpu_utilization_mean_per_host": [[0.9, 0.8], None]}

    one, two, tiny = rows = _rows(
        sweep,
        [_result(800.0), _result(600.0)],
        [missed],
        [],
        [_result(10.0, telemetry=gpus, gates=[], config={})],
    )

    assert (one.examples_per_second, one.num_repeats) == (700.0, 2)
    assert (one.batch_size, one.mode) == (256, "train")
    assert (one.host_cpu_fraction, one.gates_met) == (0.5, True)
    assert _busy(one) == (0.98, "steps")
    assert one.published.images_per_second_per_accelerator == 735.0
    assert one.rate_over_published == 700 / 735
    assert (two.gates_met, two.rate_over_published) == (False, 600 / 735)
    assert tiny.published is tiny.rate_over_published is tiny.gates_met is None
    assert tiny.host_cpu_fraction is None
    assert _busy(tiny) == (0.85, "gpu")

    legend, head, *table = sweeps.row_lines(rows)

    assert "as storage tests publish them" in legend
    assert "Published, a GPU" in head
    first, second, third, *beside = (" ".join(line.split()) for line in table)
    assert first.startswith(
        "resnet50, 1 rank emulated float16 2 256 700 700 70.0 0.00 50.0% 98.0% met 735 "
        "95.2% 335 33.0% 4 v100 Dell Ready Solutions"
    )
    assert second.startswith(
        "resnet50, 2 ranks emulated float16 2 256 1,200 600 120 0.00 50.0% 98.0% not "
        "met 735 81.6% 335 33.0% 4 v100 Dell Ready Solutions"
    )
    assert third == (
        "tiny, 2 ranks emulated — 2 — 10.0 5.00 1.00 0.00 — 85.0% — — — — — — —"
    )
    assert [line.partition(":")[0] for line in beside] == [
        *("resnet50, 1 rank", "resnet50, 2 ranks")
    ]


def test_tiers_have_what_servers_and_disks_gave_and_the_row_of_their_place() -> None:
    sweep = Sweep(
        models=("googlenet",),
        modes=("infer",),
        tiers=("remote", "local_cold"),
        data_dirs=("d",),
        remote_url="s3://bucket/d",
    )
    given = {"bytes_from_server": 6e6, "bytes_from_disk": 2e6}
    unknown = {"bytes_from_server": None, "bytes_from_disk": 2e6}

    remote, local = _rows(
        sweep,
        [_result(10.0, storage=given, timed_seconds=2.0)],
        [_result(10.0, storage=unknown, timed_seconds=2.0)],
    )

    assert remote.storage_megabytes_per_second == 4.0
    assert local.storage_megabytes_per_second == 0.0  # as the devices count
    published = [row.published.images_per_second for row in (remote, local)]
    assert published == [42_000.0, 17_000.0]


def test_rows_without_a_published_one_have_no_columns_for_it() -> None:
    sweep = Sweep(
        models=("tiny",), batch_sizes=(8,), caches=("cold", "warm"), data_dirs=("d",)
    )

    _, head, *table = sweeps.row_lines(_rows(sweep, [_result(10.0)], [_result(20.0)]))

    assert "Published" not in head
    assert [" ".join(line.split()) for line in table] == [
        "tiny, 1 rank, cold emulated float16 2 8 10.0 10.0 1.00 0.00 50.0% 98.0% met",
        "tiny, 1 rank, warm emulated float16 2 8 20.0 20.0 2.00 0.00 50.0% 98.0% met",
    ]
    assert sweeps.row_lines([]) == []

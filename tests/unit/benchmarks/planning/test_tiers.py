"""benchmarks.planning: the tiers of storage, and the resource that bound a run."""

import dataclasses
import json
from typing import Any

import pytest

from benchmarks import sweep as tables
from benchmarks.planning.plan import TIERS, Run, Sweep
from benchmarks.planning.sweep_run import Repeats
from benchmarks.reporting import binding
from benchmarks.reporting.charts import sweeps
from benchmarks.results import tree
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweptTier
from benchmarks.results.train_result import TrainResult
from tfpipe.cli import text_table

PLACES: dict[str, Any] = {
    "data_dirs": ("local",),
    "remote_url": "s3://b/x",
    "mount_dir": "mount",
    "shard_cache_dir": "cache",
}


def test_each_tier_reads_its_place() -> None:
    sweep = Sweep(tiers=tuple(TIERS), **PLACES, arguments=("--num_steps=3",))

    found = {run.tier: run.flags[1:] for run in sweep.runs()}

    steps, cache = "--num_steps=3", "--shard_cache_dir=cache"
    url, mount, local = "--data_dir=s3://b/x", "--data_dir=mount", "--data_dir=local"
    assert found == {
        "remote": [url, steps, "--read_from=direct"],
        "shard_cache_cold": [url, "--cache=cold", steps, cache],
        "shard_cache_warm": [url, "--cache=warm", steps, cache],
        "mount_cold": [mount, "--cache=cold", steps],
        "mount_warm": [mount, "--cache=warm", steps],
        "local_cold": [local, "--cache=cold", steps],
        "local_warm": [local, "--cache=warm", steps],
        "ram": [local, steps, "--ram_cache=records"],
        "decoded_ram": [local, steps, "--ram_cache=images"],
        "synthetic": [steps, "--synthetic"],
    }
    assert len({run.name for run in sweep.runs()}) == len(TIERS)


def test_flags_that_a_tier_does_not_take_are_left_out() -> None:
    given = ("--whole_batches", "--on_error=skip", "--seed=3")
    sweep = Sweep(tiers=("synthetic", "ram"), **_only("data_dirs"), arguments=given)

    synthetic, ram = sweep.runs()

    assert synthetic.arguments == ("--seed=3", "--synthetic")
    assert ram.arguments == (*given, "--ram_cache=records")


def _only(*names: str) -> dict[str, Any]:
    return {name: PLACES[name] for name in names}


@pytest.mark.parametrize(
    ("tiers", "places", "message"),
    [
        (("remote",), (), "The tier remote must have --remote_url, its data set"),
        (("mount_warm",), (), "The tier mount_warm must have --mount_dir"),
        (("ram",), (), "The tier ram must have --data_dirs"),
        (
            ("shard_cache_cold",),
            ("remote_url",),
            "The tier shard_cache_cold must have --shard_cache_dir",
        ),
        (("tape",), (), "--tiers must be one of remote, .*synthetic, got tape"),
        (
            ("synthetic",),
            ("mount_dir",),
            "--mount_dir is for tiers that --tiers does not name, got synthetic",
        ),
        ((), ("shard_cache_dir",), "--shard_cache_dir is for tiers .* got no tiers"),
    ],
)
def test_a_tier_without_its_place_is_refused(
    tiers: tuple[str, ...], places: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Sweep(tiers=tiers, **_only(*places))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"caches": ("cold",)}, "A sweep with --tiers does not use --caches"),
        ({"data_dirs": ("a", "b")}, "--tiers must have one of --data_dirs, got a,b"),
        ({"remote_url": "b/x"}, "--remote_url must be a URL, got b/x"),
        (
            {"arguments": ("--ram_cache=records",)},
            "--ram_cache cannot be given after --: --tiers sets it",
        ),
    ],
)
def test_settings_that_contradict_tiers(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sweep(tiers=("remote", "ram"), **_only("data_dirs", "remote_url") | fields)


def test_a_url_names_the_same_run_in_any_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run = Run(model="tiny", num_ranks=1, batch_size=4, data_dir="s3://b/rec", repeat=1)
    name = run.name

    monkeypatch.chdir(tmp_path)

    assert run.name == name
    assert "-rec-" in name


_BYTES = [
    f"bytes_from_{giver}" for giver in ("server", "disk", "page_cache", "ram_cache")
]


def _result(
    *, stall: float = 0.5, busy: float | None = 0.5, kind: str = "real", **storage: Any
) -> dict[str, Any]:
    return {
        "examples_per_second": 100.0,
        "cpu_seconds_per_example": 0.002,
        "stall_fraction": stall,
        "kind": kind,
        "telemetry": {"host_cpu_fraction": busy},
        "storage": {
            **dict.fromkeys(_BYTES, 0),
            **{"state": "cold", "consumed_bytes": 1000.0},
            **storage,
        },
    }


def _on_path(stall: float = 0.0, **losses: float) -> dict[str, Any]:
    shares = {"input": 0.0, "communication": 0.0, "late": 0.0, **losses}
    shares["compute"] = 1 - sum(shares.values())
    return {"stall_fraction": stall, "critical_path": {"shares": shares}}


def _waiting(busy: float, queue: float, others: float = 0.0) -> dict[str, Any]:
    load = {"others_cpu_fraction": others, "run_queue_wait_fraction": queue}
    return {"telemetry": {"host_cpu_fraction": busy}, "host_load": load}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (_result(stall=0.05), "accelerator"),
        (_result(stall=0.0, kind="emulated"), "accelerator"),
        (_result(busy=0.9, bytes_from_server=1000), "cores"),
        (_result(busy=0.9) | {"host_load": {"others_cpu_fraction": 0.49}}, "cores"),
        (_result(busy=0.9) | {"host_load": {"others_cpu_fraction": 0.85}}, "host"),
        (_result(bytes_from_server=1000), "network"),
        (_result(bytes_from_server=100, bytes_from_disk=900), "storage"),
        (_result(bytes_from_disk=50), "input"),  # 5 % bind nothing
        (_result(bytes_from_disk=None, busy=None), "input"),
        ({"stall_fraction": 0.9}, "input"),  # synthetic data
        (_on_path(input=0.2, late=0.3), "host"),
        (_on_path(input=0.3, communication=0.2), "input"),
        (_on_path(input=0.1, communication=0.2), "communication"),
        (_on_path(communication=0.5) | _waiting(busy=0.9, queue=0.3), "communication"),
        (_on_path(communication=0.5) | _waiting(busy=0.5, queue=0.9), "communication"),
        (_on_path(communication=0.5) | _waiting(busy=0.9, queue=0.9), "cores"),
        (_on_path(communication=0.5) | _waiting(0.9, 0.9, others=0.7), "host"),
        (_on_path(late=0.5) | _waiting(busy=0.9, queue=0.9), "host"),
        # Each rank waits for input a quarter of the time, and the job all of it.
        (_on_path(stall=0.01, input=0.8), "input"),
    ],
)
def test_binding_resource(result: dict[str, Any], expected: str) -> None:
    assert binding.of_run(tree.read(TrainResult, result)) == expected


def test_table_has_a_row_for_each_tier_that_ran() -> None:
    sweep = Sweep(
        tiers=("local_cold", "ram", "synthetic"), repeats=2, **_only("data_dirs")
    )
    cold, _, synthetic = sweep.series()
    (placement,) = sweep.all_placements()
    fast = {**_result(bytes_from_disk=None), "examples_per_second": 300.0}
    finished = [
        Repeats(
            cold,
            placement,
            [Result("", _result(bytes_from_disk=2e6)), Result("", fast)],
        ),
        Repeats(synthetic, placement, [Result("", {**_result(), "storage": None})]),
    ]

    first, second = rows = [tables.tier(repeats) for repeats in finished]
    assert (first.tier, first.examples_per_second) == ("local_cold", 200.0)
    assert (first.binding, first.state) == ("storage", "cold")
    assert first.bytes_from_disk is None  # a repeat does not know it
    assert (second.tier, second.bytes_from_server) == ("synthetic", 0)
    stored = json.loads(json.dumps([dataclasses.asdict(row) for row in rows]))
    assert [tree.read(SweptTier, row) for row in stored] == rows
    _, *lines = text_table.lines(sweeps.TIERS, sweeps.named_tiers(rows))
    assert [" ".join(line.split()) for line in lines] == [
        "local_cold 200 2.00 50.0% storage cold 0.00 — 0.00 0.00",
        "synthetic 100 2.00 50.0% input — 0.00 0.00 0.00 0.00",
    ]

"""Results with made-up figures, one of every kind that a page of results shows.

In: a folder. Out: JSON files and a small picture as benchmarks.train and its sisters
write them. Figures follow from a few rates, with a fixed seed, so that they agree with
each other.
"""

import datetime
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import PIL.Image

from benchmarks.planning import published, sources, summary

START = datetime.datetime(2026, 11, 20, 9, 0, tzinfo=datetime.UTC)
ENVIRONMENT: dict[str, Any] = {
    "tfpipe": "0.1.0",
    "git_revision": "b21b726e1ef19ff3fd4cb0b99a8b0a98d528b613",
    "tensorflow": "2.17.1",
    "horovod": "0.28.1",
    "python": "3.11.7",
    "kernel": "6.8.0",
    "cpu": "AMD EPYC 7742",
    "num_cpus": 64,
    "ram_bytes": 540_000_000_000,
    "gpus": ["A100", "A100", "A100", "A100"],
}
DATA = {
    "name": "imagenet-1k",
    "converter": {"version": "0.1.0", "git_revision": "4f2c9e1"},
    "num_records": 1_281_167,
    "num_bytes": 144_000_000_000,
    "digest": "xxh64:9f86d081884c7d65",
}
BYTES_PER_IMAGE = 112_000


def gate(text: str, measured: float, limit: float) -> dict[str, Any]:
    """Returns a gate as a result holds it; a share is shown in per cent."""
    is_least = ">=" in text
    margin = measured - limit if is_least else limit - measured
    shown = f"{measured:.1%}" if "%" in text else f"{measured:.4g}"
    met = "is met" if margin >= 0 else "is not met"
    return {
        "gate": text,
        "passed": margin >= 0,
        "text": f"{text} {met}: got {shown}.",
        "measured": measured,
        "limit": limit,
        "margin": margin,
    }


def train(
    *,
    model: str = "resnet50",
    num_ranks: int = 1,
    rate: float = 750.0,
    stall: float = 0.02,
    number: int = 0,
    cache: str = "warm",
    data: str = "/mnt/nvme/imagenet",
    kind: str = "real",
    config: Mapping[str, Any] = {},
    more: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Returns a result of benchmarks.train of schema version 2.

    Args:
        model: Name of the model.
        num_ranks: Number of ranks.
        rate: Images/s of all ranks.
        stall: Share of the time that the slowest rank waits for input.
        number: Number of the run, which its time and its noise follow from.
        cache: State of the page cache.
        data: Folder of the data.
        kind: real, synthetic or emulated.
        config: More options.
        more: More keys of the result.
    """
    noise = random.Random(number)
    rate *= 1 + noise.gauss(0, 0.008)
    stall *= 1 + noise.gauss(0, 0.05)
    batch = int(config.get("batch_size", 128))
    step = batch * num_ranks / rate
    start = START + datetime.timedelta(minutes=7 * number)
    result = {
        "command": "benchmarks.train",
        "schema_version": 2,
        "kind": kind,
        "started_at": start.isoformat(),
        "ended_at": (start + datetime.timedelta(seconds=120)).isoformat(),
        "config": {
            "data_dir": None if kind == "synthetic" else data,
            "model": model,
            "mode": "train",
            "batch_size": batch,
            "image_size": 224,
            "num_steps": 500,
            "synthetic": kind == "synthetic",
            "seed": 0,
            "precision": "float16",
            "emulate": "h100" if kind == "emulated" else None,
            "cache": "as_is" if kind == "synthetic" else cache,
            "require": ["au>=90%", "stall<=5%"],
            **config,
        },
        "pipeline": [
            f"   TFRecordSource(data_dir='{data}', split='train', window_size=1024)",
            " 1 Interleave(num_parallel_reads=8)",
            " 2 Map(Parse, RandomCrop(image_size=224), Flip)",
            f" 3 Batch(batch_size={batch}, drop_remainder=True)",
            " 4 Prefetch(buffer_size=-1)",
        ],
        "num_ranks": num_ranks,
        "examples_per_second": rate,
        "examples_per_second_deviation": rate * 0.09,
        "examples_per_second_per_rank": [rate / num_ranks] * num_ranks,
        "stall_fraction": stall,
        "accelerator_utilization": 1 - stall - 0.015,
        "sync_fraction": 0.015,
        "num_timed_steps": 500,
        "cpu_seconds_per_example": 0.0041,
        **_ranks(num_ranks, step, stall, noise),
        **_step_times(step, stall),
        "telemetry": {
            "num_hosts": 1,
            "host_cpu_fraction": min(0.97, 0.1 * num_ranks + 0.05),
            "gpu_utilization_mean_per_host": [[0.97 - stall] * min(num_ranks, 4)],
        },
        "host_load": {"others_cpu_fraction": 0.004, "text": "The host was quiet."},
        "steady_state": {"reached": True, "drift": 0.99, "text": "Steady."},
        "environment": ENVIRONMENT
        | {
            "hosts": [{"name": "node-a", "num_cpus": 64, "ram_bytes": 540e9}],
            "data": DATA,
        },
        "gates": [
            gate("au>=90%", 1 - stall - 0.015, 0.9),
            gate("stall<=5%", stall, 0.05),
        ],
    }
    if kind != "synthetic":
        result |= _storage(rate, cache)
    return {**result, **more}


def _ranks(
    num_ranks: int, step: float, stall: float, noise: random.Random
) -> dict[str, Any]:
    """Returns what each rank waits for; the last rank waits for input the longest."""
    waits = [step * stall * (0.5 + 0.1 * noise.random()) for _ in range(num_ranks)]
    waits[-1] = step * stall
    compute = [step * (1 - stall - 0.015)] * num_ranks
    sync = [step - wait - part for wait, part in zip(waits, compute, strict=True)]
    others = waits[0] + compute[0]
    ratio = (waits[-1] + compute[-1]) / others
    is_slow = num_ranks > 1 and ratio > 1.05
    text = f"Rank {num_ranks - 1} is {ratio:.2f} times as slow as the others' median"
    return {
        "wait_seconds_per_step_per_rank": waits,
        "compute_seconds_per_step_per_rank": compute,
        "sync_seconds_per_step_per_rank": sync,
        "critical_path": {
            "slowest": {
                "rank": num_ranks - 1,
                "over_others": ratio,
                "cause": "input" if is_slow else None,
                "text": f"{text}, because it waits for input."
                if is_slow
                else "No rank is slow.",
            }
        },
    }


def _step_times(step: float, stall: float) -> dict[str, Any]:
    edges = [step * 0.7 * 1.06**place for place in range(41)]
    counts = [
        round(900 * 2.718 ** (-(((place - 6) / 2) ** 2)))
        + round(4000 * stall * 2.718 ** (-(((place - 24) / 4) ** 2)))
        for place in range(40)
    ]
    tail = 1 + 9 * stall
    return {
        "step_histogram": {"edges_seconds": edges, "counts": counts},
        "step_seconds_p50": step * 0.98,
        "step_seconds_p90": step * 1.04,
        "step_seconds_p95": step * 1.06 * tail,
        "step_seconds_p99": step * 1.1 * tail,
        "window_steps": {"num_steps": 40, "wait_seconds_p99": step * stall * 6},
        "other_steps": {"num_steps": 460, "wait_seconds_p99": step * stall * 2},
    }


def _storage(rate: float, cache: str) -> dict[str, Any]:
    """Returns cache state, bytes and curves: a mixed cache fills after 42 of 120 s."""
    needed = rate * BYTES_PER_IMAGE / 1e6
    seconds = [float(second) for second in range(1, 121)]
    fill = {"cold": 400.0, "mixed": 42.0, "warm": 0.0}.get(cache, 0.0)
    cold = [second <= fill for second in seconds]
    noise = random.Random(cache)
    speed = [rate * (0.62 if c and cache == "mixed" else 1) for c in cold]
    speed = [value * (1 + noise.gauss(0, 0.02)) for value in speed]
    from_storage = [needed * (0.62 if c else 0.01) for c in cold]
    given = sum(from_storage) / len(from_storage)
    share = given / needed
    return {
        "storage_megabytes_per_second": given,
        "storage_bytes_read": given * 1e6 * 120,
        "consumed_megabytes_per_second": needed,
        "cache": {
            "state": cache,
            "label": cache,
            "text": f"{cache}: {share:.0%} of the consumed bytes came from storage in "
            "the timed window.",
        },
        "time_series": {
            "interval_seconds": 1.0,
            "seconds": seconds,
            "examples_per_second": speed,
            "wait_fraction": [0.4 if c and cache == "mixed" else 0.03 for c in cold],
            "storage_megabytes_per_second": from_storage,
            "host_cpu_fraction": [0.6 + 0.05 * noise.random() for _ in seconds],
            "gpu_utilization": [0.55 if c and cache == "mixed" else 0.95 for c in cold],
            "resident_fraction": [
                min(1.0, second / fill) if fill else 1.0 for second in seconds
            ],
        },
    }


def profile() -> dict[str, Any]:
    """Returns a result of benchmarks.input with a profile and a tuning."""
    costs = {
        "TFRecordSource": (0.01, 0.2),
        "Interleave": (0.09, 0.6),
        "Map(Parse, RandomCrop, Flip)": (3.4, 0.0),
        "Batch": (0.21, 0.0),
        "Prefetch": (0.0, 0.0),
    }
    stages = [
        {
            "number": place,
            "name": name,
            "cpu_seconds_per_output": cpu * 0.128,
            "wait_seconds_per_output": wait * 0.128,
            "max_rate": 64 / cpu if cpu else None,
        }
        for place, (name, (cpu, wait)) in enumerate(costs.items())
    ]
    trial = {"elements_per_second": 46.0, "cpu_seconds_per_element": 0.47, "error": ""}
    return {
        "command": "benchmarks.input",
        "schema_version": 1,
        "config": {"data_dir": "/mnt/nvme/imagenet", "do": ["profile", "tune"]},
        "pipeline": [" 1 Interleave(num_parallel_reads=8)"],
        "num_ranks": 1,
        "examples_per_second": 5900.0,
        "cpu_seconds_per_example": 0.0037,
        "profile": {
            "stages": stages,
            "examples_per_output": 128,
            "bottleneck": {
                "sentence": "Map(Parse, RandomCrop, Flip) takes 92% of the CPU: more "
                "cores would help."
            },
        },
        "tune": {
            "sentence": "Eight reads at a time are 1.2 times as fast as AUTOTUNE.",
            "trials": [
                trial | {"name": "AUTOTUNE", "ratio": 1.0, "against": "AUTOTUNE"},
                trial
                | {
                    "name": "8 reads",
                    "elements_per_second": 55.2,
                    "ratio": 1.2,
                    "against": "AUTOTUNE",
                },
            ],
        },
        "environment": ENVIRONMENT | {"num_cpus": 32},
    }


def sweep() -> dict[str, Any]:
    """Returns a document of benchmarks.sweep, one of whose runs failed."""
    rates = {1: 750.0, 2: 1480.0, 4: 2900.0}
    points = [
        {
            "num_ranks": num_ranks,
            "num_repeats": 3,
            "examples_per_second": rate,
            "examples_per_second_interval": rate * 0.02,
            "efficiency": rate / num_ranks / 750,
            "efficiency_low": rate / num_ranks / 750 - 0.02,
            "efficiency_high": rate / num_ranks / 750 + 0.02,
            "speedup": rate / 750,
        }
        for num_ranks, rate in rates.items()
    ]
    series = {"scaling": "weak", "model": "resnet50", "batch_size": 128}
    return {
        "command": "benchmarks.sweep",
        "schema_version": 2,
        "config": {"models": ["resnet50"], "ranks": [1, 2, 4]},
        "series": [{**series, "data_dir": "/mnt/nvme/imagenet", "points": points}],
        "failed": [{"run": "resnet50-x8-r1", "error": "Rank 5 was killed."}],
        "environment": ENVIRONMENT,
    }


def storage() -> dict[str, Any]:
    """Returns a result of benchmarks.storage."""
    # What, state, processes, threads, MB/s, median latency in ms.
    rows = [
        ("sequential", "direct", 1, 1, 2150.0, 0.44),
        ("sequential", "warm", 1, 1, 11800.0, 0.08),
        ("random", "direct", 1, 1, 48.0, 0.081),
        ("random", "direct", 1, 16, 610.0, 0.102),
        ("shards", "cold", 1, 1, 1900.0, 0.07),
        ("shards", "cold", 1, 16, 3100.0, 1.2),
        ("shards", "cold", 16, 1, 3350.0, 1.1),
        ("shards", "warm", 16, 1, 41000.0, 0.09),
        ("stat", "warm", 1, 1, None, 0.002),
    ]
    measurements: list[dict[str, Any]] = []
    for what, state, num_processes, num_threads, rate, milliseconds in rows:
        size = 4096 if what == "random" else 1 << 20
        latency = {
            name: milliseconds / 1e3 * factor
            for name, factor in (("p50", 1.0), ("p90", 1.6), ("p99", 4.0))
        }
        measurements.append(
            {
                "what": what,
                "state": state,
                "num_processes": num_processes,
                "num_threads": num_threads,
                "megabytes_per_second": rate,
                "reads_per_second": 350_000.0 if rate is None else rate * 1e6 / size,
                "latency_seconds": {**latency, "p99_9": None},
                "resident_fraction": {"cold": 0.0, "warm": 1.0}.get(state),
                "is_proven": None if what == "stat" else True,
            }
        )
    skipped = {"what": "stat", "state": "cold", "num_processes": 1, "num_threads": 1}
    return {
        "command": "benchmarks.storage",
        "schema_version": 1,
        "started_at": START.isoformat(),
        "config": {"place": "/mnt/nvme/imagenet", "seconds": 3.0, "max_parallel": 16},
        "num_ranks": 1,
        "measurements": [
            *measurements,
            {**skipped, "skipped": "Only root can make names cold."},
        ],
        "sentences": [
            "The fastest: 3,350 MB/s with whole shards, 16 processes, cold.",
            "It feeds 16 H100 or 23 V100 that train resnet50 with records of 115 kB.",
        ],
        "environment": ENVIRONMENT,
    }


def advice() -> dict[str, Any]:
    """Returns a prediction of benchmarks.advise for 72 V100 on a slow storage."""
    texts = {"accelerator": "v100", "num_accelerators": "72", "storage": "5.9GB/s"}
    known = {name: sources.parse(name, text, name) for name, text in texts.items()}
    return {
        "command": "benchmarks.advise",
        "schema_version": 1,
        "started_at": START.isoformat(),
        "config": texts,
        **summary.answer(known, published.ACCELERATORS, "train").as_json(),
    }


def every_kind() -> dict[str, dict[str, Any]]:
    """Returns file name -> result, for one of every kind."""
    rates = {1: (750.0, 0.012), 2: (1485, 0.018), 4: (2890, 0.035), 8: (4700, 0.19)}
    found = {
        f"resnet50-x{num_ranks}-r{repeat}": train(
            num_ranks=num_ranks, rate=rate, stall=stall, number=10 * num_ranks + repeat
        )
        for num_ranks, (rate, stall) in rates.items()
        for repeat in (1, 2, 3)
    }
    filling = train(num_ranks=4, rate=2500, stall=0.17, cache="mixed", number=101)
    cold = train(num_ranks=4, rate=1790, stall=0.4, cache="cold", number=102)
    nfs = {"num_ranks": 4, "rate": 1310.0, "stall": 0.55, "data": "/mnt/nfs/imagenet"}
    remote = train(cache="cold", number=103, **nfs)
    remote["environment"] |= {
        "data": DATA | {"name": "imagenet-1k on NFS"},
        "kernel": "5.15.0",
    }
    emulated = train(num_ranks=8, rate=14200, stall=0.24, kind="emulated", number=104)
    synthetic = train(num_ranks=4, rate=3010, stall=0.0, kind="synthetic", number=105)
    bars = {
        "input_examples_per_second": 5900.0,
        "synthetic_examples_per_second": 3010.0,
        "real_examples_per_second": 2895.0,
        "real_over_synthetic": 0.962,
        "case": "compete",
        "sentence": "Input and model compete for cores: both together reach 96% of the "
        "model alone, although each alone is faster.",
    }
    with_bars = train(
        num_ranks=4, rate=2895, stall=0.03, number=106,
        config={"bars": True}, more={"bars": bars},
    )  # fmt: skip
    learned = train(
        rate=740,
        number=107,
        config={"num_epochs": 3, "num_steps": None, "batch_size": 64},
        more={
            "epochs": [
                {"epoch": 0, "loss": 4.1, "accuracy": 0.16},
                {"epoch": 1, "loss": 2.7, "accuracy": 0.41},
                {"epoch": 2, "loss": 2.1, "accuracy": 0.52},
            ]
        },
    )
    return found | {
        "filling": filling,
        "cold": cold,
        "nfs": remote,
        "emulated-h100": emulated,
        "synthetic": synthetic,
        "storage": storage(),
        "bars": with_bars,
        "learned": learned,
        "input": profile(),
        "sweep": sweep(),
        "advice": advice(),
    }


def write(folder: pathlib.Path, results: Mapping[str, Any]) -> pathlib.Path:
    """Writes each result, and a picture beside `bars`; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        (folder / f"{name}.json").write_text(json.dumps(result), encoding="utf-8")
        if name == "bars":
            PIL.Image.new("RGB", (900, 300), "teal").save(folder / f"{name}.png")
    return folder

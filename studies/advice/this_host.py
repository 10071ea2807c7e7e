r"""Does the advisor know in advance how fast this host will train?

  python -m studies.advice.this_host --data_dir=DIR --advice_dir=WORK \
      --num_settings=8 --settings_seed=20 --host_result=result.json

Question: is the prediction right for settings that nobody has run before?

Data: the study writes the records of --data_dir, repeated, into two data sets in
--advice_dir. Calibration: the cost of an image by `benchmarks.input`, what a step takes
beside its step time, and the share of a limited storage's rate that a pipeline gets.
Settings, drawn by a seed: cores (taskset), batch size, step time of an emulated
accelerator, rate of the storage (a cgroup limits reads of the disk that --advice_dir is
on), and size of a shard cache that does not hold the data. Each setting is predicted,
and then run with `benchmarks.train --step_time_ms`.

The prediction is made before the run and from the calibration only. The table has the
predicted and the measured images/s, their ratio, and how much of the cores other
processes took meanwhile. A run beside which they took more than 5 % is repeated once,
and the quieter run counts. Run the study on a quiet host; it takes about ten minutes.

Limits of the storage need root and cgroups of version 1. Without them no setting has a
limited storage or a cache, and the table says so. Exit code 2 if a prediction is more
than 10 % off. The last line on stdout is one JSON object.
"""

import dataclasses
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

import tfpipe
from benchmarks.advisor import ceilings, simulation
from benchmarks.options import command, shared_flags
from benchmarks.reporting import output
from studies.advice import limits, runs, settings
from studies.advice.settings import Calibration, Setting

flags.declare_key_flag("data_dir")
_DIR = flags.DEFINE_string(
    "advice_dir", None, "Folder on a local disk, for data sets of some 2 GB."
)
_NUM_SETTINGS = flags.DEFINE_integer(
    "num_settings", 8, "Settings to draw.", lower_bound=1
)
_SEED = flags.DEFINE_integer(
    "settings_seed", 20, "Seed of the draw of settings.", lower_bound=0
)
_NUM_WINDOWS = flags.DEFINE_integer(
    "num_timed_windows",
    10,
    "Shuffle windows of 1024 records that each run is timed for; 10 for a steady rate.",
    lower_bound=1,
)

_RESULT = flags.DEFINE_string(
    "host_result", None, "File to write the JSON object to as well."
)

LIMIT = 0.10
_QUIET = 0.05  # of the cores, that other processes may take
_MEMORY = pathlib.Path("/dev/shm")


def predict(
    place: runs.Place, setting: Setting, calibration: Calibration
) -> dict[str, Any]:
    """Returns what the advisor and the simulation say about a setting.

    Args:
        place: The data.
        setting: The run.
        calibration: Figures of this host.
    """
    asked = settings.scenario(
        setting, calibration, num_images=place.num_images(setting)
    )
    said = ceilings.predict(asked)
    simulated = simulation.simulate(asked, max_steps=100).steady
    return {
        "predicted_images_per_second": said.images_per_second,
        "binding": said.binding,
        "ceilings": dict(said.ceilings),
        "simulated_images_per_second": simulated.images_per_second,
    }


def measure(place: runs.Place, setting: Setting) -> dict[str, Any]:
    """Runs a setting, twice if the host was busy; returns the quieter run's figures.

    Args:
        place: The data.
        setting: The run.

    Raises:
        OSError: If a run fails.
    """
    tries = []
    for _ in range(2):
        result = runs.train(place, setting)
        tries.append(
            {
                "measured_images_per_second": result["examples_per_second"],
                "stall_fraction": result["stall_fraction"],
                "cpu_seconds_per_example": result["cpu_seconds_per_example"],
                "others_cpu_fraction": result["host_load"]["others_cpu_fraction"],
                "storage": result["storage"],
            }
        )
        if _others(tries[-1]) <= _QUIET:
            break
    return min(tries, key=_others) | {"num_tries": len(tries)}


def _others(figures: Mapping[str, Any]) -> float:
    return float(figures.get("others_cpu_fraction") or 0.0)


def compare(
    place: runs.Place, drawn: Sequence[Setting], calibration: Calibration
) -> list[dict[str, Any]]:
    """Predicts all settings and then runs each; returns a row for each.

    A run that fails has its error in the row, and counts as not within the limit.

    Args:
        place: The data.
        drawn: The settings.
        calibration: Figures of this host.
    """
    said = [predict(place, setting, calibration) for setting in drawn]
    rows = []
    for setting, prediction in zip(drawn, said, strict=True):
        start = time.monotonic()
        try:
            found = measure(place, setting)
        except OSError as error:  # the other settings are still worth running
            found = {"error": str(error)}
        rows.append(
            {
                "setting": dataclasses.asdict(setting),
                **prediction,
                **found,
                **_judge(prediction, found),
                "seconds": time.monotonic() - start,
            }
        )
        print(table(rows).splitlines()[len(rows)], file=sys.stderr, flush=True)
    return rows


def _judge(prediction: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ratio of both rates, and whether it is within the limit."""
    if "error" in found:
        return {"ratio": None, "is_within": False}
    ratio = (
        prediction["predicted_images_per_second"] / found["measured_images_per_second"]
    )
    return {"ratio": ratio, "is_within": abs(ratio - 1) <= LIMIT}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line for each setting, and a last line with the ratios."""
    lines = [
        f"{'cores':>5}{'batch':>6}{'step ms':>9}{'storage':>11}{'cache':>7}"
        f"{'bound by':>13}{'predicted':>11}{'simulated':>11}{'measured':>10}"
        f"{'ratio':>7}{'others':>8}"
    ]
    lines += [_line(row) for row in rows]
    errors = [abs(row["ratio"] - 1) for row in rows if row["ratio"] is not None]
    if not errors:
        return "\n".join(lines)
    num_within = sum(row["is_within"] for row in rows)
    busy = sum(_others(row) > _QUIET for row in rows)
    lines.append(
        f"{num_within} of {len(rows)} within {LIMIT:.0%}; median error "
        f"{statistics.median(errors):.1%}, largest {max(errors):.1%}"
        + (f"; other processes disturbed {busy} runs" if busy else "")
    )
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    one = row["setting"]
    rate, share = one["storage_bytes_per_second"], one["cache_share"]
    start = (
        f"{one['num_cores']:5}{one['batch_size']:6}{one['step_time_ms']:9.1f}"
        f"{f'{rate / 1e6:.1f} MB/s' if rate else 'memory':>11}"
        f"{f'{share:.0%}' if share else '-':>7}{row['binding']:>13}"
        f"{row['predicted_images_per_second']:11.1f}"
        f"{row['simulated_images_per_second']:11.1f}"
    )
    if row["ratio"] is None:
        return f"{start}  failed: {row['error']}"
    return (
        f"{start}{row['measured_images_per_second']:10.1f}{row['ratio']:7.3f}"
        f"{_others(row):8.1%}{'' if row['is_within'] else '  off'}"
    )


def study(data_dir: str, work_dir: pathlib.Path) -> dict[str, Any]:
    """Makes the data, calibrates, predicts and measures.

    Args:
        data_dir: Folder of a converted data set.
        work_dir: Folder for data.

    Returns:
        config, calibration and rows, for JSON.

    Raises:
        OSError: If the data cannot be made, or a run fails.
        ValueError: If the folder holds other data.
    """
    place = runs.Place(
        large=work_dir / f"large-{_NUM_WINDOWS.value}",
        small=work_dir / "small",
        cache_dir=_MEMORY,
        num_timed_windows=_NUM_WINDOWS.value,
    )
    print("making the data sets", file=sys.stderr, flush=True)
    runs.write_data(data_dir, place.large, place.num_large)
    runs.write_data(data_dir, place.small, place.num_small)
    why = limits.why_not(place.large)
    if why:
        print(f"No setting has a limited storage or a cache: {why}", file=sys.stderr)
    print("calibrating, with three runs", file=sys.stderr, flush=True)
    calibration, measured = runs.calibrate(place, can_limit=why is None)
    print(f"calibrated: {calibration}", file=sys.stderr, flush=True)
    drawn = settings.draw(
        _SEED.value, _NUM_SETTINGS.value, calibration, can_limit=why is None
    )
    return {
        "config": {
            "num_settings": _NUM_SETTINGS.value,
            "settings_seed": _SEED.value,
            "num_timed_windows": _NUM_WINDOWS.value,
            "limit": LIMIT,
            "storage_is_not_limited": why,
        },
        "calibration": dataclasses.asdict(calibration) | {"runs": measured},
        "rows": compare(place, drawn, calibration),
    }


def main(argv: list[str]) -> int:
    """Prints predicted and measured figures of settings of this host."""
    command.refuse_arguments(argv)
    # An ended study must not leave a run behind, nor its cgroup.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    data_dir = shared_flags.shared()["data_dir"]
    try:
        if not data_dir or not _DIR.value:
            raise ValueError("--data_dir and --advice_dir must be given.")
        found = study(data_dir, pathlib.Path(_DIR.value))
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    report = {
        "command": "studies.advice.this_host",
        "schema_version": 1,
        **found,
        "environment": environment.describe(),
    }
    try:
        output.finish(report, table(found["rows"]), path=_RESULT.value)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0 if all(row["is_within"] for row in found["rows"]) else 2


if __name__ == "__main__":
    command.run(main, {})

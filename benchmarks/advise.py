"""How fast will a training run be, and what holds it back?

  python -m benchmarks.advise --model=resnet50 --accelerator=v100 --num_accelerators=72
  python -m benchmarks.advise --results=REPORTS --num_accelerators=8 --storage=nfs
  python -m benchmarks.advise --accelerator=h100 --what_if="cores=128,storage=10GB/s"

Nothing is measured or read: the answer is computed, and comes at once. A figure is
taken from a flag; else from --results, the --report_dir of benchmarks.storage,
benchmarks.input and benchmarks.train; else from a built-in table. The answer lists all
figures with their sources. It says how many images a second 1 to N accelerators train,
which resource binds, which remedies pay, how large a data set must be so that no cache
hides the storage, and what the first epoch and checkpoints cost.

A rate has a unit, such as --storage=10GB/s, and so has a size, such as --ram=512GB.
--what_if takes the names of these flags and compares the answers before and after.

On stdout: the answer in a sentence, tables, and one JSON object as the last line. With
--report_dir the object is stored for python -m benchmarks.report. Exit code: 0 done, 1
an error.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from benchmarks.advisor import facts, hardware, measured, summary, what_if
from benchmarks.advisor.facts import Fact
from benchmarks.models import published
from benchmarks.models.accelerators import Accelerator
from benchmarks.options import command, settings_file, shared_flags, train_flags
from benchmarks.reporting import output, results

GROUPS = {
    "What is asked": ("results", "what_if", "report_dir"),
    "What is trained": (
        *("model", "mode", "batch_size", "image_size", "whole_batches"),
        *("entry_points", "num_images", "record", "cpu_ms"),
    ),
    "Accelerators and hosts": (
        *("accelerator", "accelerators_file", "images_per_second"),
        *("num_accelerators", "accelerators_per_host", "exchange_ms"),
        *("cores", "ram", "page_cache", "cached", "local_disk", "local_disk_room"),
    ),
    "Storage": (
        *("storage", "storage_gbps", "shared_storage", "storage_cache"),
        *("requests", "request", "link", "write"),
    ),
}

for _name in (
    *("model", "mode", "batch_size", "image_size", "whole_batches"),
    *("accelerators_file", "report_dir"),
):
    flags.declare_key_flag(_name)
_RESULTS = flags.DEFINE_list(
    "results",
    None,
    "Folders or files with results of benchmarks.storage, benchmarks.input and "
    "benchmarks.train. The newest of each command counts.",
)
_WHAT_IF = flags.DEFINE_string(
    "what_if",
    None,
    'Changes to compare with, such as "cores=128,storage=10GB/s". The names are those '
    "of the flags, and hosts.",
)
_STORAGE_GBPS = flags.DEFINE_float(
    "storage_gbps",
    None,
    "The same as --storage, as a number of GB/s: 1e9 bytes a second.",
    lower_bound=0.0,
)
_SHARED_NAMES = ("num_images", "entry_points")  # flags of converters too
_HELP = {
    "accelerator": (
        f"One of {', '.join(sorted(published.ACCELERATORS))}, or a name in "
        "--accelerators_file. Default: h100."
    ),
    "images_per_second": (
        "Images a second of one accelerator that never waits. Default: the published "
        "figure of --model on --accelerator."
    ),
    "num_accelerators": "Accelerators of all hosts. Default: one host.",
    "accelerators_per_host": "Accelerators of a host. Default: 8.",
    "exchange_ms": (
        "Time by which the exchange of gradients makes a step longer. Default: 0."
    ),
    "cores": "Cores of a host. Default: those of NVIDIA's DGX.",
    "ram": "Memory of a host, such as 512GB. Default: DGX.",
    "page_cache": "Memory of a host that keeps files. Default: 80 % of --ram.",
    "cached": (
        "Share of the bytes that memory gives after the first epoch, such as 0. "
        "Default: computed from --page_cache and the size of the data."
    ),
    "local_disk": "Rate of the local disk of a host, such as 2.5GB/s.",
    "local_disk_room": "Room on the local disk of a host, such as 7TB.",
    "num_images": "Images of an epoch. Default: those of ILSVRC-2012.",
    "entry_points": (
        "yes: the data set has entry points, so that a crop decodes less. Default: no."
    ),
    "record": "Mean bytes of a record, such as 115kB. Default: ILSVRC-2012.",
    "cpu_ms": (
        "CPU time of an image on one core, in milliseconds: benchmarks.input measures "
        "it. Default: from --record."
    ),
    "storage": (
        "Rate of the storage, such as 10GB/s, or one of "
        f"{', '.join(hardware.STORAGES)}. Default: unlimited, and the answer says what "
        "is needed."
    ),
    "shared_storage": (
        "yes: --storage is the rate for all hosts together. no: for each. Default: "
        "yes, unless --storage names a storage of one host."
    ),
    "storage_cache": "Cache of the storage itself, such as 2TB. Default: 0.",
    "requests": "Most requests a second that the storage serves. Default: no limit.",
    "request": "Bytes of a request. Default: 1.048576MB, the read buffer.",
    "link": (
        "Highest rate at which a host reads over its network, such as 10GB/s. "
        "Default: 10GB/s, one link of 100 Gb/s."
    ),
    "write": "Rate of writing a checkpoint. Default: --storage, or 1.5GB/s.",
}
_TEXTS = [
    flags.DEFINE_string(name, None, text, allow_override=name in _SHARED_NAMES)
    for name, text in _HELP.items()
]


def facts_of_flags() -> dict[str, Fact]:
    """Returns the facts of the flags on the command line.

    Raises:
        ValueError: If a value has no unit or is out of range.
    """
    present = {
        holder.name: facts.parse(holder.name, holder.value, f"--{holder.name}")
        for holder in _TEXTS
        if holder.value is not None
    }
    values = flags.FLAGS
    for name in ("model", "batch_size", "image_size"):
        if values[name].present:
            text = str(values[name].value)
            present[name] = facts.parse(name, text, f"--{name}")
    if (text := values["whole_batches"].value) != "auto":
        present["whole_batches"] = facts.parse("whole_batches", text, "--whole_batches")
    if (rate := _STORAGE_GBPS.value) is not None:
        if "storage" in present:
            raise ValueError("Give --storage or --storage_gbps, got both.")
        present["storage"] = facts.parse("storage", f"{rate}GB/s", "--storage_gbps")
    return present


def run(
    facts_given: dict[str, Fact],
    by_name: dict[str, Accelerator],
    *,
    mode: str,
    paths: Sequence[str],
    change: str | None,
    config: dict[str, Any],
) -> dict[str, Any]:
    """Computes the answer and prints it.

    Args:
        facts_given: Facts of the flags on the command line.
        by_name: Accelerators by name.
        mode: "train" or "infer".
        paths: Folders and files with results.
        change: Text of --what_if, or None.
        config: The flags that were given, for the result.

    Returns:
        The result, for JSON.

    Raises:
        ValueError: If facts do not fit each other, or there is no result.
        OSError: If results cannot be read.
    """
    before = facts_given
    if paths:
        collection = results.read([pathlib.Path(path) for path in paths])
        for reason in collection.left_out:
            print(f"Note: {reason}", file=sys.stderr)
        before = what_if.apply(measured.read(collection), facts_given)
    answer = summary.answer(before, by_name, mode)
    # Before a line is printed, because it may be wrong.
    after = _after(change, before, by_name, mode)
    print(summary.text(answer))
    if after is not None:
        print(f"\nWith {change}: {after['sentences'][0]}")
        print(summary.difference(answer, after))
    result = {
        "command": "benchmarks.advise",
        "schema_version": 1,
        "started_at": output.now().isoformat(timespec="seconds"),
        "config": config,
        **answer,
        "what_if": None if after is None else {"text": change, **after},
    }
    output.print_line(result)
    return result


def _after(
    change: str | None,
    before: dict[str, Fact],
    by_name: dict[str, Accelerator],
    mode: str,
) -> dict[str, Any] | None:
    """Returns the answer after a change; None without one."""
    if change is None:
        return None
    whole = hardware.complete(before, by_name, mode)
    changed = what_if.apply(before, what_if.parse(change, whole))
    return summary.answer(changed, by_name, mode)


def _config() -> dict[str, Any]:
    """Returns the flags that were given, by name."""
    names = [name for group in GROUPS.values() for name in group]
    values = flags.FLAGS
    return {name: values[name].value for name in names if values[name].present}


def main(argv: Sequence[str]) -> int:
    """Answers what the flags ask."""
    command.refuse_arguments(argv)
    values = flags.FLAGS
    try:
        others = (train_flags, shared_flags)
        command.refuse_others(GROUPS, others, "benchmarks.advise")
        mode = values["mode"].value
        if mode == "eval":
            raise ValueError("--mode must be train or infer, got eval.")
        folder = values["report_dir"].value
        if folder:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        result = run(
            facts_of_flags(),
            settings_file.accelerators_with(values.accelerators_file),
            mode=mode,
            paths=_RESULTS.value or (),
            change=_WHAT_IF.value,
            config=_config(),
        )
        if folder:
            output.write(result, output.path_in(folder, "advise", output.now()))
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    command.run(main, GROUPS)

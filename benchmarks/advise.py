"""How fast will a training run be, and which resource holds it back?

  python -m benchmarks.advise --accelerator=v100 --num_accelerators=72
  python -m benchmarks.advise --results=REPORTS --storage=nfs
  python -m benchmarks.advise --what_if="cores=128,storage=10GB/s"

Nothing is measured or read: the answer comes at once. A figure is taken from a flag;
else from --results, the --report_dir of benchmarks.storage, benchmarks.input and
benchmarks.train; else from a built-in table. The answer lists all figures with their
sources. The answer says how many images a second 1 to N accelerators train, which
resource binds, which remedies pay, how large a data set must be so that no cache hides
the storage, and the cost of the first epoch and of checkpoints.

A rate has a unit, such as --storage=10GB/s, and so has a size, such as --ram=512GB.
--what_if takes the names of these flags and compares the answers before and after.

On stdout: the answer in a sentence, tables, and one JSON object as the last line. With
--report_dir the object is stored for python -m benchmarks.report. Exit code: 0 done, 1
an error.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, Literal

from benchmarks.models import catalog
from benchmarks.options import config
from benchmarks.planning import published, sources, summary
from benchmarks.planning.ceilings import KINDS
from benchmarks.planning.sources import Fact
from benchmarks.reporting import answers, output
from benchmarks.results import checks, collection as results
from tfpipe import cli

GROUPS = ("What is asked", "What is trained", "Accelerators and hosts", "Storage")
_ASKED, _TRAINED, _HOSTS, _STORAGE = map(cli.group, GROUPS)


def _fact(group: Callable[..., Any]) -> Callable[[str, str], Any]:
    """Returns the flag of a fact, by the form and the meaning of its value."""
    return lambda shown, about: group(None, about, shown=shown)


_trained, _of_hosts, _of_storage = map(_fact, (_TRAINED, _HOSTS, _STORAGE))


@cli.options
class AdviseOptions:
    """The question, and figures that are known. A fact has the name of its flag."""

    results: tuple[str, ...] = _ASKED(
        (),
        "Folders or files with results of benchmarks.storage, benchmarks.input and "
        "benchmarks.train. The newest of each command counts.",
    )
    what_if: str | None = _ASKED(
        None,
        'Changes to compare with, such as "cores=128,storage=10GB/s". The names are '
        "those of the flags, and hosts.",
        shown="FACT=VALUE,...",
    )
    report_dir: str | None = config.report_dir(group=GROUPS[0])
    model: str | None = _TRAINED(
        None,
        "Model that is trained. Default: resnet50.",
        choices=sorted(catalog.MODELS),
    )
    mode: Literal["train", "infer"] | None = _TRAINED(
        None, "What the model does. Default: train."
    )
    batch_size: int | None = _TRAINED(
        None,
        "Examples in a step of an accelerator. Default: the model's own.",
        least=1,
    )
    image_size: int | None = _TRAINED(
        None,
        "Height and width of the images in pixels. Default: the model's own.",
        least=32,
    )
    whole_batches: Literal["auto", "yes", "no"] | None = _TRAINED(
        None, "Whether whole batches are decoded at once. auto: as in --results."
    )
    entry_points: str | None = _trained(
        "yes|no",
        "yes: the data set has entry points, so that a crop decodes less. Default: no.",
    )
    num_images: str | None = _trained(
        "N", "Images of an epoch. Default: those of ILSVRC-2012."
    )
    record: str | None = _trained(
        "SIZE", "Mean bytes of a record, such as 115kB. Default: ILSVRC-2012."
    )
    cpu_ms: str | None = _trained(
        "X",
        "CPU time of an image on one core, in milliseconds. benchmarks.input measures "
        "the time. Default: from --record.",
    )
    accelerator: str | None = _of_hosts(
        "NAME",
        "Kind of the accelerators. One of "
        f"{', '.join(published.NAMES)}, or a name in --accelerators_file. "
        f"{published.NO_FIGURE} Default: h100.",
    )
    accelerators_file: str | None = _HOSTS(
        None, "JSON or TOML file of other accelerators, as for benchmarks.train."
    )
    images_per_second: str | None = _of_hosts(
        "X",
        "Images a second of one accelerator that never waits. Default: the published "
        "figure of --model on --accelerator.",
    )
    num_accelerators: str | None = _of_hosts(
        "N", "Accelerators of all hosts. Default: one host."
    )
    accelerators_per_host: str | None = _of_hosts(
        "N", "Accelerators of a host. Default: 8."
    )
    exchange_ms: str | None = _of_hosts(
        "X", "Time by which the exchange of gradients makes a step longer. Default: 0."
    )
    cores: str | None = _of_hosts(
        "N", "Cores of a host. Default: those of NVIDIA's DGX."
    )
    ram: str | None = _of_hosts(
        "SIZE", "Memory of a host, such as 512GB. Default: DGX."
    )
    page_cache: str | None = _of_hosts(
        "SIZE", "Memory of a host that keeps files. Default: 80 % of --ram."
    )
    cached: str | None = _of_hosts(
        "SHARE",
        "Share of the bytes that memory gives after the first epoch, such as 0. "
        "Default: computed from --page_cache and the size of the data.",
    )
    local_disk: str | None = _of_hosts(
        "RATE", "Rate of the local disk of a host, such as 2.5GB/s."
    )
    local_disk_room: str | None = _of_hosts(
        "SIZE", "Room on the local disk of a host, such as 7TB."
    )
    storage: str | None = _of_storage(
        "RATE",
        "Rate of the storage, such as 10GB/s, or one of "
        f"{', '.join(sources.STORAGES)}. Default: unlimited, and the answer says what "
        "is needed.",
    )
    storage_gbps: float | None = _STORAGE(
        None,
        "The same as --storage, as a number of GB/s: 1e9 bytes a second.",
        least=0,
    )
    shared_storage: str | None = _of_storage(
        "yes|no",
        "yes: --storage is the rate for all hosts together. no: for each. Default: "
        "yes, unless --storage names a storage of one host.",
    )
    storage_cache: str | None = _of_storage(
        "SIZE", "Cache of the storage itself, such as 2TB. Default: 0."
    )
    requests: str | None = _of_storage(
        "N", "Most requests a second that the storage serves. Default: no limit."
    )
    request: str | None = _of_storage(
        "SIZE",
        "Bytes of a request. Default: as in --results, or 1.048576MB, the read buffer.",
    )
    price_per_1000_requests: str | None = _of_storage(
        "X", "Price of 1,000 requests, in any currency. Default: 0."
    )
    price_per_gb: str | None = _of_storage(
        "X", "Price of a GB that leaves the storage. Default: 0."
    )
    link: str | None = _of_storage(
        "RATE",
        "Highest rate at which a host reads over its network, such as 10GB/s. Default: "
        "one port of NVIDIA's DGX, 50GB/s of a DGX H100.",
    )
    write: str | None = _of_storage(
        "RATE", "Rate of writing a checkpoint. Default: --storage, or 1.5GB/s."
    )


# The flags without an effect, by the question.
UNUSED = (
    cli.Unused("--mode=infer", lambda o: o.mode == "infer", ("write", "exchange_ms")),
    cli.Unused(
        "An answer without --storage and --results",
        lambda o: not (o.storage or o.storage_gbps is not None or o.results),
        ("shared_storage",),
    ),
)


def facts_of(options: AdviseOptions) -> dict[str, Fact]:
    """Returns the facts that the flags give."""
    values = {name: getattr(options, name) for name in KINDS}
    if values["whole_batches"] == "auto":
        del values["whole_batches"]
    by_name = {
        name: sources.parse(name, str(value), f"--{name}")
        for name, value in values.items()
        if value is not None
    }
    if (rate := options.storage_gbps) is not None:
        if "storage" in by_name:
            raise ValueError("Give --storage or --storage_gbps, got both.")
        by_name["storage"] = sources.parse("storage", f"{rate}GB/s", "--storage_gbps")
    return by_name


def advise(options: AdviseOptions) -> None:
    """Computes the answer, prints and keeps it."""
    if folder := options.report_dir:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    of_flags, mode = facts_of(options), options.mode or "train"
    by_name = published.accelerators_with(options.accelerators_file)
    before, notes, doubts = of_flags, list[str](), list[str]()
    if options.results:
        collection = results.read([pathlib.Path(path) for path in options.results])
        notes = [f"Note: {reason}" for reason in collection.left_out]
        size = catalog.image_size(options.model, options.image_size)
        calibrated, doubts = sources.read_facts(collection, image_size=size)
        before = sources.change(calibrated, of_flags)
    answer = summary.answer(before, by_name, mode)
    details, after = [summary.text(answer)], None
    if options.what_if is not None:
        whole = sources.complete(before, by_name, mode)
        changes = sources.parse_changes(options.what_if, whole)
        after = summary.answer(sources.change(before, changes), by_name, mode)
        details.append(f"\nWith {options.what_if}: {after.sentences[0]}")
    asked = dataclasses.asdict(options).items()
    result = {
        **checks.head(checks.ADVISE),
        "started_at": output.now().isoformat(timespec="seconds"),
        "config": {name: value for name, value in asked if value not in (None, ())},
        **answer.as_json(),
        "doubts": doubts,
        "what_if": after and {"text": options.what_if, **after.as_json()},
    }
    output.show(result, *answers.advise(result), notes=notes, details=details)
    if folder:
        output.write(result, output.path_in(folder, "advise", output.now()))


COMMANDS = (
    cli.Command(
        AdviseOptions, advise, arguments=("results",), groups=GROUPS, unused=UNUSED
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)

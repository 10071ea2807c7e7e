"""Environment of a result: versions, hosts and the data set, without paths.

A sweep does not join results of other versions or machines with new results. A sweep
imports no TensorFlow: functions import the modules with TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import tfpipe
from benchmarks.system.machine import Host

if TYPE_CHECKING:
    from benchmarks.distributed.ranks import Ranks


def of_run(world: Ranks, source: Any) -> dict[str, Any]:
    """Returns the environment of a run, with its hosts and data; all ranks call it.

    A run without a source, or with a source without an index, has no data.
    """
    has_index = getattr(source, "index", None) is not None
    described = data(source) if has_index else None
    return {**describe(), "hosts": hosts(world), "data": described}


def describe() -> dict[str, Any]:
    """Returns the environment of this process as a dict for JSON."""
    import tensorflow as tf

    from benchmarks.distributed import ranks

    build = tf.sysconfig.get_build_info()
    driver = None
    with contextlib.suppress(OSError):  # there is no driver
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
        driver = re.search(r"Kernel Module\D*([\d.]+)", text)
    return {
        **here(),
        "tensorflow": tf.__version__,
        "horovod": ranks.version(),
        "numpy": np.__version__,
        "num_cpus": tfpipe.host.num_cores(),
        "ram_bytes": tfpipe.host.ram_bytes(),
        "gpus": _gpu_names(),
        "driver": driver and driver[1],
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "nccl": installed("nvidia-nccl-cu12"),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
    }


def _gpu_names() -> list[str]:
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    gpus = tf.config.list_physical_devices("GPU")
    return [str(details(gpu).get("device_name", gpu.name)) for gpu in gpus]


def hosts(world: Ranks) -> list[dict[str, Any]]:
    """Returns name, boot, processor, memory and ranks of each host; all ranks call it.

    Cores and memory count the whole host. The order of hosts is that of first ranks.
    """
    here = {
        "name": platform.node(),
        "machine_id": machine_id(),
        "boot_id": tfpipe.host.boot_id(),
        "cpu": tfpipe.host.cpu_model(),
        "num_cpus": os.cpu_count(),
        "ram_bytes": psutil.virtual_memory().total,
    }
    by_host: dict[Host, dict[str, Any]] = {}
    for rank, (host, described) in enumerate(world.gather((Host.here(), here))):
        by_host.setdefault(host, {**described, "ranks": []})["ranks"].append(rank)
    return list(by_host.values())


def machine_id() -> str:
    """Returns a digest of the machine, the same after a reboot.

    The digest holds the name, /etc/machine-id, the processor, the cores, the memory in
    whole GB, and the GPUs. The rate of a machine depends on them. The page cache ends
    with a boot, so its proofs use the boot id.
    """
    own = ""
    with contextlib.suppress(OSError):  # a container may have none
        own = pathlib.Path("/etc/machine-id").read_text().strip()
    memory = round(tfpipe.host.ram_bytes() / 1e9)
    parts = (platform.node(), own, tfpipe.host.cpu_model(), os.cpu_count(), memory)
    return hashlib.sha256(repr((*parts, _gpu_names())).encode()).hexdigest()[:16]


def paths(pipeline: tfpipe.Pipeline) -> dict[str, str]:
    """Returns the choice of each faster path in a pipeline; {} without a preset."""
    return {name: choice.value for name, choice in pipeline.paths.items()}


def data(source: Any) -> dict[str, Any]:
    """Returns the identity of a data set: name, converter, size and digests.

    num_records and num_bytes count the shards of all splits. The digest changes if a
    shard does: it is made of names, sizes and digests of all shards. git_revision is
    None if the converter did not run from a git checkout. index_digest and tags
    belong to the source: the files of the store when the source was opened.
    """
    index = source.index
    shards = [shard for split in index.splits.values() for shard in split]
    lines = [f"{s.name} {s.num_records} {s.num_bytes} {s.digest}\n" for s in shards]
    return {
        "name": index.name,
        "converter": {k: index.made_by.get(k) for k in ("version", "git_revision")},
        "num_records": sum(shard.num_records for shard in shards),
        "num_bytes": sum(shard.num_bytes for shard in shards),
        "digest": hashlib.sha256("".join(lines).encode()).hexdigest()[:32],
        "index_digest": source.index_digest,
        "tags": source.tags,
    }


def here() -> dict[str, Any]:
    """Returns versions and hardware, without the import of TensorFlow."""
    return {
        "tfpipe": tfpipe.__version__,
        "git_revision": tfpipe.host.git_revision(),
        "tensorflow": installed("tensorflow") or installed("tensorflow-cpu"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu": tfpipe.host.cpu_model(),
    }


def changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the differences from the environment of a result to the present.

    A version is left out if the result or the present environment lacks the version.
    """
    return [
        f"{name} {stored[name]} is now {value}"
        for name, value in now.items()
        if value is not None and stored.get(name) not in (None, value)
    ]


def installed(package: str) -> str | None:
    """Returns the version of a package; None if the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

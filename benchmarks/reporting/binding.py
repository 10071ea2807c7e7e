"""The resource behind the largest loss of a run, as a word.

| word                           | the largest loss on the critical path           |
|--------------------------------|-------------------------------------------------|
| accelerator                    | none: the input kept up, and the model decides  |
| cores, network, storage, input | input, and the resource that explains it        |
| communication                  | the averages over ranks                         |
| cores                          | the averages, whose threads waited for a core   |
| host                           | stopped ranks, late ranks, ranks without a core |
|                                | input, and other processes took most cores      |

The first evidence decides about input. Most cores were busy, and the threads of the run
wanted most cores, so that cores were short. Otherwise many bytes came from a server or
a disk. Otherwise the stages of the pipeline waited for each other. Averages lack cores
by the same evidence.
"""

from collections.abc import Mapping

from benchmarks.results.train_result import SourceBytes, TrainResult

# The remedy for each word. "input": stages wait for other stages.
REMEDIES: Mapping[str, str] = {
    "accelerator": "nothing: the input keeps up",
    "cores": "python -m benchmarks.input --data_dir=DIR --do=tune, or more cores",
    "network": "--shard_cache_dir=C keeps shards on a local disk",
    "storage": "python -m benchmarks.storage DIR says what the storage gives",
    "input": "python -m benchmarks.input --data_dir=DIR --do=profile,tune",
    "communication": "fewer or larger steps, --fp16_allreduce, or a faster network "
    "between hosts",
    "host": "a quiet host: critical_path names the late ranks and steps",
}

# Shares of the time, of the cores and of the bytes of a binding resource, at least.
_MOST_LOST, _FULL, _MANY, _HALF = 0.05, 0.85, 0.05, 0.5


def of_run(result: TrainResult) -> str:
    """Returns the resource behind the largest loss, an item of `REMEDIES`.

    An older result has only its stall.
    """
    shares = result.critical_path.shares or {"input": result.stall_fraction or 0.0}
    losses = {
        part: shares.get(part, 0.0) for part in ("communication", "late", "input")
    }
    part, load = max(losses, key=losses.__getitem__), result.host_load
    if losses[part] <= _MOST_LOST:
        return "accelerator"
    if part == "late":
        return "host"
    waits_for_cores = (load.run_queue_wait_fraction or 0.0) >= _HALF
    if _lacks_cores(result) and (part == "input" or waits_for_cores):
        return "host" if (load.others_cpu_fraction or 0.0) >= _HALF else "cores"
    if part == "communication":
        return "communication"
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server or 0.0, source.bytes_from_disk or 0.0
    if max(server, disk) > _MANY * (source.consumed_bytes or 0.0):
        return "network" if server >= disk else "storage"
    return "input"


def _lacks_cores(result: TrainResult) -> bool:
    """Whether most cores were busy, and the threads of the run wanted most cores.

    A busy host alone is no evidence: threads that wait for a disk or a link want no
    core. Many waits for a core are none either: threads that a link wakes at once wait
    for each other, and then all cores are free. Results of older versions know only how
    busy the host was.
    """
    shares = result.host_load.wanted_cpu_fraction, result.telemetry.host_cpu_fraction
    measured = [share for share in shares if share is not None]
    return bool(measured) and min(measured) >= _FULL

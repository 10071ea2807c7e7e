"""Tuning: every thread, buffer and budget knob of a pipeline in one value.

In: numbers, or None where tf.data decides. Out: `tf.data.Options`, and values for the
knobs that stages leave open. A tuning changes the speed of a pipeline. It never changes
the elements, and their order only if `deterministic` is False.
"""

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tfpipe import errors, host
from tfpipe.location import atomic

AUTOTUNE = -1  # tf.data.AUTOTUNE, as a number to print

# tf.data stores numbers of threads in 32 bits.
_MOST_THREADS = (1 << 31) - 1

_FORMAT = 1  # version of the format of the file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """The threads and the memory that a pipeline uses.

    Example:
        >>> tuning = tfpipe.Tuning(num_parallel_maps=8, private_threadpool_size=4)
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, tuning=tuning)
        >>> pipeline.tuning.num_threads
        4

    Args:
        num_parallel_reads: Number of extents that Interleave reads at the same time.
        num_parallel_maps: Number of elements in work at the same time in a Map;
            AUTOTUNE (-1) lets tf.data decide, up to the number of threads. A call of a
            Map after Batch holds a batch, so the number of threads is the most there
            too. A tuple has a number for every Map, in order, without such a bound.
        prefetch_buffer_size: Number of batches that Prefetch keeps ready; -1 lets
            tf.data decide.
        read_buffer_bytes: Bytes of the buffer of an open shard. TensorFlow's default is
            256 kB for local files but 127 MB for s3://.
        private_threadpool_size: Number of threads of the pipeline; None shares
            TensorFlow's pool, with a thread for every core of the host.
        max_intra_op_parallelism: Number of threads within an op. Elements already run
            in parallel, so 1 is fastest.
        ram_budget_bytes: Bytes of memory that AUTOTUNE may plan for; None is half of
            the memory of the host, in every process.
        fuse_map_and_batch: Whether a Map right before a Batch writes its results into
            the batch; otherwise a thread copies them.
        deterministic: Whether elements come in the order of the data. False may be
            faster if some elements take much longer than others. A run resumed within
            an epoch may then get the elements in work twice or never.
    """

    num_parallel_reads: int = 4
    num_parallel_maps: int | tuple[int, ...] = AUTOTUNE
    prefetch_buffer_size: int = AUTOTUNE
    read_buffer_bytes: int = 1 << 20
    private_threadpool_size: int | None = None
    max_intra_op_parallelism: int = 1
    ram_budget_bytes: int | None = None
    fuse_map_and_batch: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        errors.settle_bools(self, "fuse_map_and_batch", "deterministic")
        errors.settle_ints(self, ["num_parallel_reads", "read_buffer_bytes"], least=1)
        errors.settle_ints(self, ["ram_budget_bytes"], least=1, also=[None])
        threads: dict[str, Any] = {"least": 1, "most": _MOST_THREADS}
        errors.settle_ints(self, ["private_threadpool_size"], also=[None], **threads)
        errors.settle_ints(self, ["max_intra_op_parallelism"], **threads)
        decided: dict[str, Any] = {"least": 1, "also": [AUTOTUNE]}
        errors.settle_ints(self, ["prefetch_buffer_size"], **decided)
        name, maps = "num_parallel_maps", self.num_parallel_maps
        if isinstance(maps, list | tuple):  # JSON turns the tuple into a list
            calls = (errors.require_int(self, name, n, **decided) for n in maps)
            errors.settle(self, name, tuple(calls))
        else:
            errors.settle_ints(self, [name], **decided)

    def num_parallel_calls(self, position: int) -> int:
        """Returns `num_parallel_maps` of a Map, counted from 0.

        Raises:
            ValueError: If there are numbers for fewer Maps.
        """
        calls = self.num_parallel_maps
        if isinstance(calls, int):
            return calls
        if position >= len(calls):
            raise ValueError(
                "Tuning.num_parallel_maps must be one number or have one for each Map, "
                f"got {len(calls)} and at least {position + 1} Maps."
            )
        return calls[position]

    @property
    def num_threads(self) -> int:
        """Number of threads of the pipeline, its own or the cores."""
        return self.private_threadpool_size or host.num_cores()

    @classmethod
    def for_local_ranks(cls, num_local_ranks: int) -> "Tuning":
        """Returns a tuning for a rank that shares the cores of its host.

        Raises:
            ValueError: If num_local_ranks is below 1.
        """
        errors.require_int("", "num_local_ranks", num_local_ranks, least=1)
        cores = host.num_cores()
        return cls(private_threadpool_size=max(1, cores // num_local_ranks))

    def options(self) -> tf.data.Options:
        """Returns the tf.data options with these values."""
        options = tf.data.Options()
        options.deterministic = self.deterministic
        options.experimental_optimization.map_and_batch_fusion = self.fuse_map_and_batch
        options.threading.max_intra_op_parallelism = self.max_intra_op_parallelism
        if self.private_threadpool_size is not None:
            options.threading.private_threadpool_size = self.private_threadpool_size
        if self.ram_budget_bytes is not None:
            options.autotune.ram_budget = self.ram_budget_bytes
        # Order and seeds are arithmetic: no Python function of a pipeline keeps a state
        # that a checkpoint of an iterator would lack.
        options.experimental_external_state_policy = (
            tf.data.experimental.ExternalStatePolicy.IGNORE
        )
        # `reading.order` shares the records among ranks; tf.data must not do so too.
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        return options

    def save(
        self, path: str | os.PathLike[str], *, made_for: Mapping[str, Any], **rest: Any
    ) -> None:
        """Writes the tuning to a JSON file, for `load`.

        Args:
            path: The file.
            made_for: Host, TensorFlow and pipeline of the tuning, see `made_for`.
            rest: More keys and values for the file, such as the measurements.

        Raises:
            OSError: If the file cannot be written.
            ValueError: If the path is a URL.
        """
        errors.require_local_path("", "path", path)
        content = {"format": _FORMAT, "made_for": dict(made_for)}
        content |= {"tuning": dataclasses.asdict(self), **rest}
        text = json.dumps(content, indent=1) + "\n"
        # Each rank of a job may search, and they end at the same time.
        atomic.write_chosen(pathlib.Path(path), text.encode())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, fingerprint: str | None = None
    ) -> "Tuning":
        """Returns the tuning of a file, or the default tuning if it does not fit here.

        A tuning fits if the processor, the number of cores, the memory, the version of
        TensorFlow and the pipeline are the same. Otherwise a warning names the
        differences.

        Args:
            path: File that `save` wrote.
            fingerprint: `Pipeline.fingerprint` of the pipeline to tune; None accepts
                any pipeline.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If `save` did not write the file.
        """
        content = read_saved(path)
        here = made_for(fingerprint or content["made_for"].get("pipeline", ""))
        there = content["made_for"]
        stale = [
            f"{k} {there.get(k)} not {v}" for k, v in here.items() if v != there.get(k)
        ]
        if stale:
            warnings.warn(
                f"The tuning in {path} was made for {', '.join(stale)}. The default is "
                "used; tune again.",
                stacklevel=2,
            )
            return cls()
        return cls(**content["tuning"])


def without_tuning(stages: Iterable[Any]) -> list[Any]:
    """Returns the stages with every knob open."""
    return [s.without_tuning() if hasattr(s, "without_tuning") else s for s in stages]


def read_saved(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the whole content of a file of `Tuning.save`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If `Tuning.save` did not write the file, or the path is a URL.
    """
    errors.require_local_path("", "path", path)
    try:
        content = errors.from_json(pathlib.Path(path).read_text(encoding="utf-8"))
        names = {"made_for", "tuning"}
        is_ours = content["format"] == _FORMAT and names <= set(content)
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise ValueError(
            f"{path} must be a tuning in format {_FORMAT}, as Tuning.save writes it. "
            "Tune again."
        )
    return dict(content)


def made_for(fingerprint: str) -> dict[str, Any]:
    """Returns the conditions of a tuning: host, TensorFlow and pipeline."""
    return {
        "cpu": host.cpu_model(),
        "num_cores": host.num_cores(),
        "ram_gb": round(host.ram_bytes() / 1e9),
        "tensorflow": tf.__version__,
        "pipeline": fingerprint,
    }

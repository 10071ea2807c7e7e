"""Tuning: every thread, buffer and budget knob of a pipeline in one value.

In: numbers, or None where tf.data decides. Out: `tf.data.Options`, and the knobs that
stages left open. A tuning changes how fast elements come, never which or in what order,
unless `deterministic` is False.
"""

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfpipe import errors, host

AUTOTUNE = -1  # tf.data.AUTOTUNE, so that a printed tuning says what it is

# The value of each knob that leaves it to tf.data.
_OPEN = {
    "num_parallel_maps": AUTOTUNE,
    "prefetch_buffer_size": AUTOTUNE,
    "private_threadpool_size": None,
    "ram_budget_bytes": None,
}

_FORMAT = 1  # of the file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a pipeline uses threads and memory.

    Args:
        num_parallel_reads: Extents read at the same time by Interleave.
        num_parallel_maps: Elements processed at the same time by each Map; AUTOTUNE
            (-1) lets tf.data decide. A tuple has a number for each Map, in order.
        prefetch_buffer_size: Batches kept ready by Prefetch; -1 lets tf.data decide.
        read_buffer_bytes: Buffer of each open shard. TensorFlow's own default is
            256 kB locally but 127 MB on s3://.
        private_threadpool_size: Threads of this pipeline; None shares TensorFlow's
            pool, which has a thread for each core of the host.
        max_intra_op_parallelism: Threads within one op. Elements already run in
            parallel, so 1 is fastest.
        ram_budget_bytes: Memory that AUTOTUNE may plan for; None is half of the
            host's, in every process.
        fuse_map_and_batch: Whether a Map right before a Batch writes its results into
            the batch, in place of a copy by one thread.
        deterministic: Whether elements come in the order of the data. False may be
            faster where some take much longer than others; who resumes within an
            epoch then may meet elements that were in flight twice or never.
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
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            checked: Any
            # A file of JSON has a list.
            if field.name == "num_parallel_maps" and isinstance(value, list | tuple):
                checked = tuple(_checked(field.name, item) for item in value)
            else:
                checked = _checked(field.name, value)
            errors.settle(self, field.name, checked)

    def num_parallel_calls(self, number: int) -> int:
        """num_parallel_maps of one Map, counted from 0.

        Raises:
            ValueError: If there are numbers for fewer Maps.
        """
        calls = self.num_parallel_maps
        if isinstance(calls, int):
            return calls
        if number >= len(calls):
            raise ValueError(
                "Tuning.num_parallel_maps must be one number or have one for each Map, "
                f"got {len(calls)} and at least {number + 1} Maps."
            )
        return calls[number]

    @classmethod
    def for_local_ranks(cls, num_local_ranks: int) -> "Tuning":
        """A tuning for one of several processes that share this host's cores equally.

        Raises:
            ValueError: If num_local_ranks is below 1.
        """
        errors.require_int("", "num_local_ranks", num_local_ranks, least=1)
        cores = host.num_cores()
        return cls(private_threadpool_size=max(1, cores // num_local_ranks))

    def options(self) -> tf.data.Options:
        """The tf.data options that carry these values."""
        options = tf.data.Options()
        options.deterministic = self.deterministic
        options.experimental_optimization.map_and_batch_fusion = self.fuse_map_and_batch
        options.threading.max_intra_op_parallelism = self.max_intra_op_parallelism
        if self.private_threadpool_size is not None:
            options.threading.private_threadpool_size = self.private_threadpool_size
        if self.ram_budget_bytes is not None:
            options.autotune.ram_budget = self.ram_budget_bytes
        # The ranks share records by order.py; tf.data must not shard once more.
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        return options

    def save(
        self, path: str | os.PathLike[str], *, made_for: Mapping[str, Any], **rest: Any
    ) -> None:
        """Writes the tuning to a file of JSON, for `load`.

        Args:
            path: The file.
            made_for: What it holds for, see `made_for`.
            rest: What else the file shall tell, such as the evidence.

        Raises:
            OSError: If it cannot be written.
        """
        content = {"format": _FORMAT, "made_for": dict(made_for)}
        content |= {"tuning": dataclasses.asdict(self), **rest}
        text = json.dumps(content, indent=1) + "\n"
        pathlib.Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, fingerprint: str | None = None
    ) -> "Tuning":
        """The tuning of a file, or the default one where that was for something else.

        Warns then, and says what differs: the processor, the cores, the memory, the
        version of TensorFlow, or the pipeline.

        Args:
            path: What `save` wrote.
            fingerprint: `Pipeline.fingerprint` of the pipeline to tune; None does not
                look at it.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is no file of `save`.
        """
        content = read_saved(path)
        here = made_for(fingerprint or content["made_for"].get("pipeline", ""))
        found = content["made_for"]
        stale = [
            f"{k} {found.get(k)} not {v}" for k, v in here.items() if v != found.get(k)
        ]
        if stale:
            warnings.warn(
                f"The tuning in {path} was made for {', '.join(stale)}. The default is "
                "used; tune again.",
                stacklevel=2,
            )
            return cls()
        return cls(**content["tuning"])


def read_saved(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a file of `Tuning.save` holds.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no such file.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        known = content["format"] == _FORMAT and {"made_for", "tuning"} <= set(content)
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(
            f"{path} must be a tuning in format {_FORMAT}, as Tuning.save writes it. "
            "Tune again."
        )
    return dict(content)


def made_for(fingerprint: str) -> dict[str, Any]:
    """What a tuning holds for: this host, this TensorFlow and that pipeline."""
    return {
        "cpu": host.cpu_model(),
        "num_cores": host.num_cores(),
        "ram_gb": round(host.ram_bytes() / 1e9),
        "tensorflow": tf.__version__,
        "pipeline": fingerprint,
    }


def _checked(name: str, value: Any) -> Any:
    if name in ("fuse_map_and_batch", "deterministic"):
        return errors.require_bool("Tuning", name, value)
    also = [_OPEN[name]] if name in _OPEN else []
    most = _MOST_THREADS if name in _THREADS else None
    return errors.require_int("Tuning", name, value, least=1, most=most, also=also)


# tf.data keeps numbers of threads in 32 bits.
_THREADS = ("private_threadpool_size", "max_intra_op_parallelism")
_MOST_THREADS = (1 << 31) - 1

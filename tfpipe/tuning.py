"""Tuning: every thread, buffer and budget knob of a pipeline in one value.

In: numbers, or None where tf.data decides. Out: `tf.data.Options`, and the knobs that
stages left open. A tuning changes how fast elements come, never which or in what order.
"""

import dataclasses
import os

import tensorflow as tf

AUTOTUNE = -1  # tf.data.AUTOTUNE, so that a printed tuning says what it is

# The value of each knob that leaves it to tf.data.
_OPEN = {
    "num_parallel_maps": AUTOTUNE,
    "prefetch_buffer_size": AUTOTUNE,
    "private_threadpool_size": None,
    "ram_budget_bytes": None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a pipeline uses threads and memory.

    Args:
        num_parallel_reads: Extents read at the same time by Interleave.
        num_parallel_maps: Elements processed at the same time by each Map; AUTOTUNE
            (-1) lets tf.data decide.
        prefetch_buffer_size: Batches kept ready by Prefetch; -1 lets tf.data decide.
        read_buffer_bytes: Buffer of each open shard. TensorFlow's own default is
            256 kB locally but 127 MB on s3://.
        private_threadpool_size: Threads of this pipeline; None shares TensorFlow's
            pool, which has a thread for each core of the host.
        max_intra_op_parallelism: Threads within one op. Elements already run in
            parallel, so 1 is fastest.
        ram_budget_bytes: Memory that AUTOTUNE may plan for; None is half of the
            host's, in every process.
        deterministic: Whether elements come in the order of the data. False may be
            faster when shards stall.
    """

    num_parallel_reads: int = 4
    num_parallel_maps: int = AUTOTUNE
    prefetch_buffer_size: int = AUTOTUNE
    read_buffer_bytes: int = 1 << 20
    private_threadpool_size: int | None = None
    max_intra_op_parallelism: int = 1
    ram_budget_bytes: int | None = None
    deterministic: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if name == "deterministic" or (name in _OPEN and value == _OPEN[name]):
                continue
            if value is None or value < 1:
                choice = f" or {_OPEN[name]}" if name in _OPEN else ""
                raise ValueError(f"Tuning.{name} must be >= 1{choice}, got {value}.")

    @classmethod
    def for_local_ranks(cls, num_local_ranks: int) -> "Tuning":
        """A tuning for one of several processes that share this host's cores equally.

        Raises:
            ValueError: If num_local_ranks is below 1.
        """
        if num_local_ranks < 1:
            raise ValueError(f"num_local_ranks must be >= 1, got {num_local_ranks}.")
        cores = len(os.sched_getaffinity(0))
        return cls(private_threadpool_size=max(1, cores // num_local_ranks))

    def options(self) -> tf.data.Options:
        """The tf.data options that carry these values."""
        options = tf.data.Options()
        options.deterministic = self.deterministic
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

"""A trace of some steps by TensorFlow's profiler, for TensorBoard.

In: a step function. Out: the same function, which rank 0 traces in the steps that
--trace_steps names. The files are in the folder `trace` of --report_dir.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training.steps import Batch, StepFunction, StepResult

FOLDER = "trace"


@contextlib.contextmanager
def traced(
    function: StepFunction, config: Config, ranks: Ranks, num_steps: int
) -> Iterator[StepFunction]:
    """Yields the step function that traces the steps of the config.

    Args:
        num_steps: Steps of the run, the warm-up included.
    """
    chosen = config.traced_steps
    if chosen is None:
        yield function
        return
    if chosen.stop > num_steps:
        raise ValueError(
            f"--trace_steps={config.trace_steps} must end within the {num_steps} steps "
            "of the run, the warm-up included. Choose earlier steps."
        )
    if not ranks.is_first:
        yield function
        return
    with contextlib.ExitStack() as profiling:
        yield _counting(function, chosen, profiling, str(config.report_dir))


def _counting(
    function: StepFunction,
    chosen: range,
    profiling: contextlib.ExitStack,
    report_dir: str,
) -> Callable[[Batch], StepResult]:
    """Returns the function that begins and ends the trace; `profiling` ends it too."""
    index = -1

    def step(batch: Batch) -> StepResult:
        nonlocal index
        index += 1
        if index == chosen.start:
            folder = pathlib.Path(report_dir) / FOLDER
            profiling.enter_context(tf.profiler.experimental.Profile(str(folder)))
        if index not in chosen:
            return function(batch)
        with tf.profiler.experimental.Trace("step", step_num=index, _r=1):
            result = function(batch)
        if index == chosen[-1]:
            profiling.close()
        return result

    return step

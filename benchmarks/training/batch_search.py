"""The largest batch that fits in the memory of a GPU: doubled, then halved in between.

In: a config and the ranks. Out: a number of examples. Every rank tries its own GPU with
random images and exchanges nothing; the smallest answer counts. A try takes some steps
and ends at the first error of memory.
"""

import itertools
from collections.abc import Callable

import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options.config import Config
from benchmarks.training import caches, steps
from benchmarks.training.setting import make_setting

_MULTIPLE = 8  # of examples, as Tensor Cores like them
_PRECISION = 16  # the answer is right within this part of it
_MOST = 1 << 16
_NUM_STEPS = 3  # the second uses other memory than the first, which compiles
_SIGNS = ("RESOURCE_EXHAUSTED", "OOM", "out of memory")  # XLA has no error of its own


def find(config: Config, ranks: Ranks) -> int:
    """Returns the largest batch for the GPUs of all ranks; all ranks call it."""
    if not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            "--find_batch_size must have a GPU, whose memory limits the batch, and "
            "TensorFlow sees none here. Give --batch_size."
        )
    start = catalog.MODELS[config.model].batch_size
    batch_size: int = min(ranks.gather(search(lambda size: fits(config, size), start)))
    if not batch_size:
        raise ValueError(
            f"A batch of {_MULTIPLE} examples of --model={config.model} must fit in "
            "the memory of every GPU, and does not. Choose a smaller --image_size, or "
            "--precision=float16."
        )
    return batch_size


def search(fits: Callable[[int], bool], start: int) -> int:
    """Returns the largest number of examples that fits, a multiple of 8; 0 for none.

    Example:
        >>> search(lambda size: size <= 1000, start=64)
        960
    """
    low, high = 0, start
    while high <= _MOST and fits(high):
        low, high = high, 2 * high
    while high - low > max(_MULTIPLE, low // _PRECISION):
        middle = (low + high) // 2 // _MULTIPLE * _MULTIPLE
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def fits(config: Config, batch_size: int) -> bool:
    """Tries some steps on random images; returns whether the memory was enough."""
    same = ("model", "mode", "image_size", "seed", "precision", "data_format", "xla")
    kept = {name: getattr(config, name) for name in (*same, "num_classes")}
    try:
        _run_steps(Config(synthetic=True, batch_size=batch_size, **kept))
    except tf.errors.OpError as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        return False
    finally:
        steps.forget_models()  # the next try needs the memory
    return True


def _run_steps(config: Config) -> None:
    alone = Ranks()
    setting = make_setting(config, alone)
    model = steps.build_model(setting)
    if config.mode == "train":
        optimizer = steps.make_optimizer(model, setting, alone)
        step = steps.make_train_step(model, optimizer, setting, alone)
    else:
        step = steps.make_infer_step(model, setting)
    # Batches wait on the device while a step runs.
    batches = caches.to_device(setting.pipeline.build(num_epochs=None))
    for batch in itertools.islice(batches, _NUM_STEPS):
        step(batch)

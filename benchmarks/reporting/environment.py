"""Environment of a result: versions and hardware, without host names or paths."""

import os
import platform
from typing import Any

import numpy as np
import tensorflow as tf

import tfpipe
from benchmarks.distributed import ranks


def describe() -> dict[str, Any]:
    """Returns the environment of this process as a dict that JSON can hold."""
    return {
        "tfpipe": tfpipe.__version__,
        "tensorflow": tf.__version__,
        "horovod": ranks.version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "kernel": platform.release(),
        "cpu": tfpipe.cpu_model(),
        "num_cpus": len(os.sched_getaffinity(0)),
        "ram_bytes": tfpipe.ram_bytes(),
        "gpus": [_gpu_name(gpu) for gpu in tf.config.list_physical_devices("GPU")],
    }


def _gpu_name(gpu: tf.config.PhysicalDevice) -> str:
    return str(
        tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
    )

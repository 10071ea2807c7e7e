"""The flags that several benchmarks take.

In: the command line. Out: the values by name.
"""

from typing import Any

from absl import flags

from benchmarks.models import catalog
from benchmarks.system.tiers import place

_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder or URL of a converted data set, with its index.json: a path, or s3://, "
    "gs://, az://, abfs://, http(s):// or hdfs://.",
)
_READ_FROM = flags.DEFINE_enum(
    "read_from",
    "auto",
    place.READ_FROM,
    "auto: a folder is read in place, a URL through the shard cache. direct: a URL is "
    "read with tensorflow-io, and nothing is kept.",
)
_SHARD_CACHE_DIR = flags.DEFINE_string(
    "shard_cache_dir",
    None,
    "Folder on a local disk of each host, through which the shards of a URL, or of a "
    "folder such as a shared mount, are read. Default for a URL: $TFPIPE_SHARD_CACHE, "
    "or ~/.cache/tfpipe/shards.",
)
_SHARD_CACHE_MAX_GB = flags.DEFINE_float(
    "shard_cache_max_gb",
    None,
    "Room that --shard_cache_dir may take at most on a host, in GB. Default: 80 % of "
    "the room that is free.",
    lower_bound=0.0,
)
_MODEL = flags.DEFINE_enum(
    "model", "resnet50", sorted(catalog.MODELS), "Which model to train or evaluate."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    None,
    "Examples in a batch of each rank. Default: the model's own.",
    lower_bound=1,
)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size",
    None,
    "Height and width of the images in pixels. Default: the model's published size.",
    lower_bound=32,
)
_REPORT_DIR = flags.DEFINE_string(
    "report_dir",
    None,
    "Write the result (JSON) and a picture of the first batch here, for "
    "python -m benchmarks.report.",
)
_SEED = flags.DEFINE_integer(
    "seed",
    0,
    "Seed of weights, order and augmentation; the same on all ranks.",
    lower_bound=0,
    # The converters define --seed too; only tests import both packages.
    allow_override=True,
)
_TUNING = flags.DEFINE_string(
    "tuning",
    None,
    "JSON file of a tuning: benchmarks.input writes it, benchmarks.train reads it.",
)
_WHOLE_BATCHES = flags.DEFINE_enum(
    "whole_batches",
    "auto",
    ["auto", "yes", "no"],
    "Decode and crop whole batches at once: the same batches, which cost less with the "
    "native op. Each parallel call takes the memory of a batch. auto: yes where it "
    "pays; the result says what ran, and print(pipeline) why.",
)


# Flags that say how --data_dir is read.
PLACE = ("read_from", "shard_cache_dir", "shard_cache_max_gb")


def shared() -> dict[str, Any]:
    """Returns the values of the flags, by name."""
    return {
        "data_dir": _DATA_DIR.value,
        "read_from": _READ_FROM.value,
        "shard_cache_dir": _SHARD_CACHE_DIR.value,
        "shard_cache_max_gb": _SHARD_CACHE_MAX_GB.value,
        "model": _MODEL.value,
        "image_size": _IMAGE_SIZE.value,
        "batch_size": _BATCH_SIZE.value,
        "seed": _SEED.value,
        "tuning": _TUNING.value,
        "whole_batches": {"yes": True, "no": False}.get(_WHOLE_BATCHES.value, "auto"),
        "report_dir": _REPORT_DIR.value,
    }

"""The flags that several benchmarks take.

In: the command line. Out: the values by name.
"""

import dataclasses
from typing import Any

from absl import flags

from benchmarks.models import catalog
from benchmarks.options import data_access

flags.DEFINE_string(
    "data_dir",
    None,
    "Folder or URL of a converted data set, with its index.json: a path, or s3://, "
    "gs://, az://, abfs://, http(s):// or hdfs://.",
)
flags.DEFINE_enum(
    "read_from",
    "auto",
    data_access.READ_FROM,
    "auto: a folder is read in place, a URL through the shard cache. direct: a URL is "
    "read with tensorflow-io, and nothing is kept.",
)
flags.DEFINE_string(
    "shard_cache_dir",
    None,
    "Folder on a local disk of each host, through which the shards of a URL, or of a "
    "folder such as a shared mount, are read. Default for a URL: $TFPIPE_SHARD_CACHE, "
    "or ~/.cache/tfpipe/shards.",
)
flags.DEFINE_float(
    "shard_cache_max_gb",
    None,
    "Room that --shard_cache_dir may take at most on a host, in GB. Default: 80 % of "
    "the room that is free.",
    lower_bound=0.0,
)
flags.DEFINE_enum(
    "model", "resnet50", sorted(catalog.MODELS), "Which model to train or evaluate."
)
flags.DEFINE_integer(
    "batch_size",
    None,
    "Examples in a batch of each rank. Default: the model's own.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "image_size",
    None,
    "Height and width of the images in pixels. Default: the model's published size.",
    lower_bound=32,
)
flags.DEFINE_string(
    "report_dir",
    None,
    "Write the result (JSON) and a picture of the first batch here, for "
    "python -m benchmarks.report.",
)
flags.DEFINE_integer(
    "seed",
    0,
    "Seed of weights, order and augmentation; the same on all ranks.",
    lower_bound=0,
    # The converters define --seed too; only tests import both packages.
    allow_override=True,
)
flags.DEFINE_string(
    "tuning",
    None,
    "JSON file of a tuning: benchmarks.input writes it, benchmarks.train reads it.",
)
flags.DEFINE_enum(
    "whole_batches",
    "auto",
    ["auto", "yes", "no"],
    "Decode and crop whole batches at once: the same batches, which cost less with the "
    "native op. Each parallel call takes the memory of a batch. auto: yes where it "
    "pays; the result says what ran, and print(pipeline) why.",
)


# Flags that say how --data_dir is read.
ACCESS = ("read_from", "shard_cache_dir", "shard_cache_max_gb")


def fields_of(config: Any, values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of the flags that a class of options has fields for, by name.

    Args:
        config: The dataclass.
        values: The parsed flags.
    """
    names = [field.name for field in dataclasses.fields(config)]
    fields = {name: values[name].value for name in names if name in values}
    whole = {"yes": True, "no": False}.get(fields["whole_batches"], "auto")
    return fields | {"whole_batches": whole}

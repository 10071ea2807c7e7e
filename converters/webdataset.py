"""Converts the tars of a WebDataset into TFRecord shards with index and catalog.

  python -m converters.webdataset --input='shards-{000..099}.tar' --output_dir=DIR
  python -m converters.webdataset --input=train='s3://bucket/train-*.tar' \\
      --input=validation='s3://bucket/val-*.tar' --output_dir=DIR

Members of a tar whose names differ only after the first dot of the file name are parts
of one sample: a/b.jpg, a/b.cls and a/b.json have the key a/b. The image is the part
that ends as that of an image, or --image_part. --label_from says where the class is:
  cls   the part .cls, a number or a text (default)
  json  the value of --label_key in the part .json, such as label or meta.class.name
  key   the folders of the key; of a key without folders, all before its first _
Classes that are texts get labels in their order, or from --label_map. Classes that are
numbers are the labels; --label_map names them, with lines `<label> <class>`.

Tars are read in place, on a disk or by URL; they are neither unpacked nor copied. A
compressed tar is refused, and so is an image without the part that holds its class;
--on_null=skip leaves such images out. rejects.jsonl names each sample without image or
class, and each member that is a link or a device, or whose name is absolute or has `..`
in it.

DIR gets the same files as from converters.folder. The same input, options and seed give
the same bytes. The last line on stdout is one JSON object. Exit code: 0 done, 1 an
error.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from converters.inputs.archives import samples
from converters.inputs.tables import columns
from converters.jobs.job import Job
from converters.options import archives, command, labelled, policy, shared, start

flags.adopt_module_key_flags(archives)

shared.define("label_from", "image_part", "on_null")
flags.adopt_module_key_flags(shared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebdatasetOptions(archives.ArchiveOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If values do not fit together.
    """

    name: str = "webdataset"
    label_from: samples.LabelPart = "cls"
    image_part: str | None = None
    on_null: str = columns.FAIL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_from not in samples.SOURCES:
            raise ValueError(
                f"--label_from must be one of {', '.join(samples.SOURCES)}, got "
                f"{self.label_from!r}."
            )
        if self.label_key is not None and self.label_from != samples.FROM_JSON:
            raise ValueError(
                f"--label_key={self.label_key} needs --label_from=json, got "
                f"{self.label_from}."
            )


def config_from_flags() -> WebdatasetOptions:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    usual = samples.usual_source(shared.only("label_key"))
    return archives.options_from_flags(
        WebdatasetOptions,
        label_from=shared.only("label_from") or usual,
        image_part=shared.only("image_part"),
    )


def convert(config: WebdatasetOptions) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
        RemoteError: If a URL cannot be read or written.
    """
    return command.convert("converters.webdataset", config, lambda: make_job(config))


def make_job(config: WebdatasetOptions) -> Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be read.
        RemoteError: If a URL cannot be read.
    """
    rule = samples.ClassRule(
        source=config.label_from, json_key=config.label_key or "label"
    )

    return archives.make_job(
        config,
        command_name="converters.webdataset",
        reader=samples.reader(
            rule, image_part=config.image_part, on_null=config.on_null
        ),
        own_options={"label_from": config.label_from, "image_part": config.image_part},
    )


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)

"""Converts ImageNet, as tars or folders, into TFRecord shards with an index.

  python -m converters.imagenet RAW DIR

RAW holds, as it comes or unpacked, in any mix:
  ILSVRC2012_img_train.tar, or train/ with <synset>/*.JPEG or <synset>.tar
  ILSVRC2012_img_val.tar, val/*.JPEG or val/<synset>/*.JPEG: validation split, if any
  synset_labels.txt (line i is the synset of the i-th validation image by name) or
    ILSVRC2012_devkit_t12.tar.gz: labels of a validation split without class folders
  ILSVRC2012_bbox_train_v2.tar.gz, bbox/ or Annotation/: bounding boxes (XML), if any
or the folder of Kaggle, with ILSVRC/Data/CLS-LOC and LOC_val_solution.csv beside it.
Tars are read without being unpacked. RAW may be a URL, such as s3://bucket/raw; its
boxes must then be packed. Labels are those of ILSVRC-2012 (1 to 1000 in the order of
the synsets), also for a part of its classes. RAW/synsets.txt (one synset a line, in
label order) and RAW/synset_words.txt (synset, tab, name) replace these labels.

DIR gets train-SSSSS-of-NNNNN and validation-SSSSS-of-NNNNN, or with --layout=tfds
imagenet-train.tfrecord-SSSSS-of-NNNNN and so on (tf.train.Example records with the keys
of the Inception scripts), catalog.parquet (one row a record), files for other readers
and, last and only on success, index.json. Sound JPEG files are stored byte for byte. A
flag for each other kind of image says what is done about it. changes.jsonl names each
image that is stored in another form; rejects.jsonl names each image that is left out,
and the files and boxes of RAW that are left out. The same input, options and seed give
the same bytes, whatever the number of workers and tasks. A command that was cut off
goes on when it is run again.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

from converters.conversion import steps
from converters.images.policy import Policy
from converters.inputs.ilsvrc import IlsvrcReader
from converters.options import job, shared
from converters.options.job import ConvertOptions, reader_of
from tfpipe import cli


@cli.options
class ImagenetOptions(ConvertOptions):
    """Options of the conversion of ImageNet, whose images keep their orientation."""

    input_dir: str = shared.input_dir(shown="RAW")
    name: str = "imagenet"
    policy: Policy = job.policy()


def run(options: ImagenetOptions) -> None:
    """Converts ImageNet."""
    steps.run_command("converters.imagenet", options, reader_of(IlsvrcReader, options))


COMMANDS = (
    shared.command(ImagenetOptions, run, arguments=("input_dir", "output_dir")),
)


if __name__ == "__main__":
    cli.run(*COMMANDS)

"""Converts a folder for each class into TFRecord shards with an index.

  python -m converters.folder PHOTOS DIR
  python -m converters.folder PHOTOS DIR --validation_fraction=0.1

PHOTOS holds a directory for each class, nested or not: a class is a directory with
images in it, named by its path. If PHOTOS has train/ with directories in it,
PHOTOS/train, PHOTOS/val (or valid, validation) and PHOTOS/test are the splits.
Otherwise all images are one split, train. --validation_fraction takes a part of it as
the validation split, and --split_fractions divides it into train, validation and test.

Images end as those of JPEG and of any format that Pillow reads do, in any case: .jpg,
.png, .webp, .tif, .avif, .jp2, .ppm, .tga and others; .heic needs `pip install
pillow-heif`. docs/how_to/convert.md names the formats that are left out. The content
decides what an image is. rejects.jsonl names each file that is left out, with the
reason and what to do.

Labels count up from --label_base in the order of the class names, or come from
--label_map: a file of lines `<label> <class>`, or of classes in label order. --classes
takes a part of the classes and leaves their labels as they are.

DIR gets the same files as from converters.imagenet. Photographs are stored upright, as
their EXIF orientation says, without loss where possible: see --exif_orientation. The
same input, options and seed give the same bytes. The last line on stdout is one JSON
object. Exit code: 0 done, 1 an error.
"""

from converters.conversion import steps
from converters.inputs.classtree import TreeReader
from converters.options import shared
from converters.options.job import ConvertOptions, reader_of
from tfpipe import cli


@cli.options
class FolderOptions(ConvertOptions):
    """Options of the conversion of a folder for each class."""

    input_dir: str = shared.input_dir()
    name: str = "folder"


def run(options: FolderOptions) -> None:
    """Converts the folder."""
    steps.run_command("converters.folder", options, reader_of(TreeReader, options))


COMMANDS = (shared.command(FolderOptions, run, arguments=("input_dir", "output_dir")),)


if __name__ == "__main__":
    cli.run(*COMMANDS)

"""An image of an input: its name, its class, and where its bytes are.

In: the words of a reader about an image. Out: the bytes, from a file on a disk or by
URL. Never here: the format of the bytes.
"""

from typing import NamedTuple

from tfpipe.location import parts
from tfpipe.location.location import Location

Box = tuple[float, float, float, float]  # xmin, ymin, xmax and ymax, 0 to 1
# Number of the class of an image until the classes have labels.
NO_CLASS = -1


class Image(NamedTuple):
    """An image of an input.

    Attributes:
        name: Its name in the catalog, before `catalog_name`.
        class_index: Number of its class in label order, from 0; NO_CLASS if the classes
            have no labels yet.
        file: The file of the bytes, relative to the input folder; or a URL.
        offset: Start of the bytes in the file.
        num_bytes: Size in bytes; may be 0.
    """

    name: str
    class_index: int
    file: str
    offset: int
    num_bytes: int


def whole_file(path: str, num_bytes: int) -> Image:
    """Returns a whole file of the input folder as an image."""
    # One string object for both fields saves a quarter of the memory of an image.
    return Image(path, NO_CLASS, path, 0, num_bytes)


def read_image(input_dir: Location, image: Image) -> bytes:
    """Reads the bytes of an image."""
    return parts.read(input_dir, image.file, image.offset, image.num_bytes)


def catalog_name(name: str) -> str:
    r"""Returns a file name as text for storage in UTF-8.

    File systems allow any bytes in names. Bytes that are not UTF-8 are lone surrogates
    in a Python string; a byte XX becomes the text `\udcXX`.
    """
    return name.encode(errors="backslashreplace").decode()

"""A folder as people keep their photos: 31 of them, in 5 classes, not all in order."""

import dataclasses
import io
import pathlib

import numpy as np
import PIL.Image

# Color of each class: a small model tells them apart after a few epochs.
COLORS = {
    "apples": (200, 40, 40),
    "bananas": (225, 205, 60),
    "grass": (60, 150, 50),
    "night": (25, 25, 45),
    "sea": (50, 110, 210),
}
NUM_PHOTOS = 31

_ORIENTATION_TAG, _SIDEWAYS = 0x0112, 6
_HEIC_HEADER = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


@dataclasses.dataclass(frozen=True)
class OwnPhotos:
    """The content of the folder.

    Attributes:
        class_names: The classes in label order.
        counts: Number of readable photos of each class.
        sizes: Height and width in pixels, upright, of each readable photo, by its path
            in the folder.
        sideways: Paths of the photos that EXIF asks to turn by a quarter.
        broken: Path of a JPEG that was cut short.
        heic: Path of a file that begins as HEIC does; no plug-in decodes the rest.
        other: Path of a file that is no photo.
    """

    class_names: list[str]
    counts: dict[str, int]
    sizes: dict[str, tuple[int, int]]
    sideways: list[str]
    broken: str
    heic: str
    other: str


def make_own_photos(folder: pathlib.Path) -> OwnPhotos:
    """Writes the photos, always the same bytes, and returns what is in the folder."""
    names = list(COLORS)
    sizes: dict[str, tuple[int, int]] = {}
    sideways = []
    for number in range(NUM_PHOTOS - 2):
        name = names[number % len(names)]
        size = (72 + number % 5, 96 + number % 7)
        path, content = f"{name}/IMG_{number:04d}.jpg", {}
        if number == 7:
            path = f"{name}/scan.TIF"
        elif number == 11:
            path = f"{name}/screenshot.png"
        elif number % 6 == 0:
            content["orientation"] = _SIDEWAYS
            sideways.append(path)
        _write(folder / path, _photo(number, COLORS[name], size), **content)
        sizes[path] = size
    # With these names, both stay in the train split when a fifth is held out with seed
    # 0, so that each class has photos in the other splits.
    whole = folder / "sea" / "IMG_0004.jpg"
    broken = whole.with_name("IMG_0030.jpg")
    broken.write_bytes(whole.read_bytes()[:-200])
    (folder / "night" / "IMG_0029.HEIC").write_bytes(_HEIC_HEADER + bytes(500))
    (folder / "grass" / "notes.txt").write_text("The lawn, last summer.\n")
    counts = {name: sum(p.startswith(f"{name}/") for p in sizes) for name in names}
    return OwnPhotos(
        class_names=names,
        counts=counts,
        sizes=sizes,
        sideways=sideways,
        broken="sea/IMG_0030.jpg",
        heic="night/IMG_0029.HEIC",
        other="grass/notes.txt",
    )


def _photo(
    seed: int, color: tuple[int, int, int], size: tuple[int, int]
) -> PIL.Image.Image:
    """A picture of a color, with noise, and lighter at the top than at the bottom."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 12, (*size, 3)) + random.normal(0, 12, 3)
    light = np.linspace(25, -25, size[0])[:, None, None]
    return PIL.Image.fromarray(
        np.clip(np.asarray(color) + noise + light, 0, 255).astype(np.uint8)
    )


def _write(path: pathlib.Path, image: PIL.Image.Image, orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if orientation == 1:
        image.save(path)
        return
    exif = PIL.Image.Exif()
    exif[_ORIENTATION_TAG] = orientation
    out = io.BytesIO()
    image.transpose(PIL.Image.Transpose.ROTATE_90).save(out, "JPEG", exif=exif)
    path.write_bytes(out.getvalue())

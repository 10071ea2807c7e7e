"""The tables of docs/concepts/inputs.md about damage: each damage and cell is tried."""

import dataclasses
import io
import os
import pathlib
import re
import shutil
from collections.abc import Callable

import numpy as np
import PIL.Image
import pytest

from converters import verify
from converters.checks.shard import LEVELS
from converters.images import jpeg_header, prepare
from converters.images.policy import Policy
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.damage import flip
from tfpipe.shards import image_record, index, records
from tfpipe.shards.example import decode_example

pytestmark = needs_native

DOCS = pathlib.Path(__file__).parents[4] / "docs/concepts/inputs.md"
NUM_IMAGES = 4


def table(header: str) -> dict[str, list[str]]:
    """Returns the cells of each row of a table of the docs, by the first cell."""
    lines = DOCS.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {header}"))
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


IMAGES, SETS = table("damage to a JPEG"), table("damage to a data set")


def photograph(seed: int) -> bytes:
    """A JPEG of about 40 kB, as full of detail as a photograph."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    image = PIL.Image.fromarray(coarse).resize((400, 320), PIL.Image.Resampling.BICUBIC)
    noisy = np.asarray(image) + random.normal(0, 12, (320, 400, 3))
    out = io.BytesIO()
    PIL.Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(out, "JPEG")
    return out.getvalue()


PHOTOGRAPHS = [photograph(seed) for seed in range(NUM_IMAGES)]


def middle(jpeg: bytes) -> int:
    return (jpeg_header.read_header(jpeg).scan + len(jpeg)) // 2


def put(jpeg: bytes, at: int, new: bytes) -> bytes:
    return jpeg[:at] + new + jpeg[at + len(new) :]


def damaged_header(jpeg: bytes) -> bytes:
    """A JPEG with twelve bits a sample in its header, which nobody wrote."""
    return put(jpeg, jpeg.index(b"\xff\xc0") + 4, b"\x0c")


Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "no bytes": lambda jpeg: b"",
    "no image": lambda jpeg: b"<html>404</html>" * 100,
    "a damaged header": damaged_header,
    "cut": lambda jpeg: jpeg[: middle(jpeg)],
    "cut, and zeros up to its size": lambda jpeg: put(
        jpeg, middle(jpeg), bytes(len(jpeg) - middle(jpeg))
    ),
    "cut, and another JPEG behind": lambda jpeg: jpeg[: middle(jpeg)] + PHOTOGRAPHS[0],
    "cut, and an end marker": lambda jpeg: jpeg[: middle(jpeg)] + jpeg_header.EOI,
    "4 kB of zeros in its middle": lambda jpeg: put(jpeg, middle(jpeg), bytes(4096)),
    "4 kB missing in its middle": lambda jpeg: (
        jpeg[: middle(jpeg)] + jpeg[middle(jpeg) + 4096 :]
    ),
    "4 kB of another JPEG in its middle": lambda jpeg: put(
        jpeg, middle(jpeg), PHOTOGRAPHS[0][-5000:-904]
    ),
    "bytes behind its end": lambda jpeg: jpeg + b"a trailer",
}


def is_stored(jpeg: bytes, decode: str) -> bool:
    corrupt = "skip" if decode == "full" else "ignore"
    policy = Policy(decode=decode, corrupt=corrupt)  # type: ignore[arg-type]
    return isinstance(prepare.prepare(jpeg, policy), prepare.Prepared)


def convert(raw: pathlib.Path, out: pathlib.Path, images: list[bytes]) -> pathlib.Path:
    """Writes images as a tree, and converts the tree without decoding."""
    for number, jpeg in enumerate(images):
        path = raw / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
    conversions.convert(
        conversion(
            "folder",
            input_dir=str(raw),
            output_dir=str(out),
            policy=Policy(decode="header"),
            num_workers=1,
            fsync=False,
        )
    )
    return out


def first_level(data_dir: pathlib.Path, raw: pathlib.Path) -> str:
    """Returns the first level of `verify` with a fault; "none" if no level has one."""
    for level in LEVELS:
        options = verify.VerifyOptions(
            data_dir=str(data_dir), level=level, input_dir=str(raw), num_workers=1
        )
        if verify.verify(options).num_faults:
            return level
    return "none"


def test_the_tables_name_each_kind() -> None:
    assert [*IMAGES] == [*DAMAGES, "one changed bit"]
    assert [*SETS] == [*CHANGES]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_to_a_jpeg(name: str, tmp_path: pathlib.Path) -> None:
    header, full, level = IMAGES[name]
    jpeg = DAMAGES[name](PHOTOGRAPHS[1])

    assert is_stored(jpeg, "header") == (header == "no")
    assert is_stored(jpeg, "full") == (full == "no")
    if header == "no":
        raw = tmp_path / "raw"
        out = convert(raw, tmp_path / "out", [PHOTOGRAPHS[0], jpeg])
        assert first_level(out, raw) == level


def test_one_changed_bit_is_mostly_not_seen() -> None:
    """The codes after a wrong code mostly end where they should."""
    random = np.random.default_rng(7)
    found = 0
    for number in range(200):
        jpeg = bytearray(PHOTOGRAPHS[number % NUM_IMAGES])
        jpeg[random.integers(jpeg_header.read_header(jpeg).scan, len(jpeg) - 2)] ^= 1
        assert is_stored(bytes(jpeg), "header")
        found += not is_stored(bytes(jpeg), "full")

    assert IMAGES["one changed bit"] == ["no", "seldom", "seldom"]
    assert 0 < found < 80


def edit(data_dir: pathlib.Path, change: Callable[[bytes], bytes]) -> None:
    """Changes the data of the last record, with right checksums everywhere."""
    known = index.load(data_dir)
    (shard,) = known.splits["train"]
    path = data_dir / shard.name
    *_, last = records.read(path)
    framed = b"".join(records.frame([change(last.data)]))
    path.write_bytes(path.read_bytes()[: last.byte_offset] + framed)
    found = index.describe_file(path)
    new = dataclasses.replace(shard, digest=found.digest, num_bytes=found.num_bytes)
    index.write(dataclasses.replace(known, splits={"train": (new,)}), data_dir)


def other_label(data: bytes) -> bytes:
    (label,) = decode_example(data)[image_record.LABEL].values
    key = image_record.LABEL.encode()
    at = data.index(key) + len(key)
    value = data.index(bytes([label]), at + 4)
    return put(data, value, bytes([3 - label]))


def other_height(data: bytes) -> bytes:
    """Another height in the header of the JPEG; features and catalog stay."""
    at = data.index(b"\xff\xc0") + 5
    return put(data, at, (312).to_bytes(2, "big"))


def zeros_in_image(data: bytes) -> bytes:
    return put(data, len(data) // 2, bytes(4096))


Change = Callable[[pathlib.Path, pathlib.Path], object]
CHANGES: dict[str, Change] = {
    "a shard is missing": lambda out, raw: shard_of(out).unlink(),
    "a shard is cut": lambda out, raw: os.truncate(shard_of(out), 50_000),
    "a file beside the shards is missing": lambda out, raw: (
        out / "labels.txt"
    ).unlink(),
    "a byte of a shard": lambda out, raw: flip(shard_of(out), 40_000),
    "4 kB of zeros in a shard": lambda out, raw: shard_of(out).write_bytes(
        put(shard_of(out).read_bytes(), 60_000, bytes(4096))
    ),
    "a byte of the catalog or of a file beside the shards": lambda out, raw: flip(
        out / "labels.txt", 3
    ),
    "a label, with right checksums": lambda out, raw: edit(out, other_label),
    "a JPEG of another size, with right checksums": lambda out, raw: edit(
        out, other_height
    ),
    "4 kB of zeros in a JPEG, with right checksums": lambda out, raw: edit(
        out, zeros_in_image
    ),
    "the original of an image is another one": lambda out, raw: (
        raw / "class1" / "1.jpg"
    ).write_bytes(PHOTOGRAPHS[3]),
}


def shard_of(out: pathlib.Path) -> pathlib.Path:
    (path,) = out.glob("train-*")
    return path


@pytest.fixture(scope="module")
def converted(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[pathlib.Path, pathlib.Path]:
    base = tmp_path_factory.mktemp("levels")
    return convert(base / "raw", base / "out", PHOTOGRAPHS), base / "raw"


def test_sound_images_and_data_sets_have_no_fault(
    converted: tuple[pathlib.Path, pathlib.Path],
) -> None:
    assert all(is_stored(jpeg, "full") for jpeg in PHOTOGRAPHS)
    assert first_level(*converted) == "none"


@pytest.mark.parametrize("name", CHANGES)
def test_damage_to_a_data_set(
    name: str, converted: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    out, raw = (shutil.copytree(part, tmp_path / part.name) for part in converted)
    CHANGES[name](out, raw)

    assert [first_level(out, raw)] == SETS[name]


def test_a_cut_file_is_left_out_wherever_it_is_cut() -> None:
    """A cut file is left out at each level, whatever TensorFlow makes of its start."""
    for keep in (0.3, 0.9, 0.999):
        jpeg = PHOTOGRAPHS[0][: int(len(PHOTOGRAPHS[0]) * keep)]
        for decode in ("header", "full"):
            found = prepare.prepare(jpeg, Policy(decode=decode))  # type: ignore[arg-type]
            assert isinstance(found, prepare.Rejected)
            assert found.reason == "truncated"
            assert re.search(r"cut short", found.detail)

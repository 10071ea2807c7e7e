"""converters.folder on photographs that lie on their side, and what it says of them."""

import io
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

from converters.conversion.summary import orientation_warnings
from converters.images.policy import Policy
from converters.jobs import publish, rebuild
from converters.jobs.again import Again
from converters.options import job
from tests.support.data import conversions
from tests.support.data.native_op import native_op  # noqa: F401
from tests.unit.converters.test_folder import config
from tfpipe.location.location import Location
from tfpipe.native import libraries
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example


def _photo(orientation_tag: int, kind: str = "JPEG", **options: object) -> bytes:
    """A photograph of 32 x 48 with one bright corner, and its EXIF orientation."""
    y, x = np.mgrid[:32, :48]
    pixels = np.stack([x * 4, y * 6, 200 - 2 * x - 2 * y], -1).astype(np.uint8)
    pixels[:8, :16] = 255
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation_tag
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, kind, exif=exif, **options)
    return out.getvalue()


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    """A JPEG of each orientation; one whose side ends in a block; other formats."""
    raw = tmp_path / "photos"
    (raw / "cat").mkdir(parents=True)
    for tag in range(1, 9):
        data = _photo(tag, quality=90, subsampling=2)
        (raw / "cat" / f"{tag}.jpg").write_bytes(data)
    image = PIL.Image.open(io.BytesIO(_photo(6))).crop((0, 0, 48, 31))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image.save(raw / "cat" / "edge.jpg", exif=exif, quality=90)
    for kind in ("PNG", "WEBP", "TIFF"):
        (raw / "cat" / f"{kind}.jpg").write_bytes(_photo(6, kind))
    return raw


def _stored(data_dir: pathlib.Path) -> dict[str, bytes]:
    found = {}
    for record in records.read(
        data_dir / "train-00000-of-00001", byte_offsets=(), on_bytes=lambda data: None
    ):
        example = decode_example(record.data)
        name = example["image/filename"].values[0].decode()
        found[name] = example["image/encoded"].values[0]
    return found


def _error(encoded: bytes, source: pathlib.Path) -> float:
    """Returns the mean difference to what a viewer of photographs shows."""
    shown = PIL.ImageOps.exif_transpose(PIL.Image.open(source)).convert("RGB")
    with PIL.Image.open(io.BytesIO(encoded)) as image:
        assert image.getexif().get(0x0112, 1) == 1
        assert image.size == shown.size
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return float(np.abs(pixels - np.asarray(shown)).mean())


LOSSLESS = {
    "kept": 1,
    "rotated_exif_lossless": 7,
    "rotated_exif": 1,
    "converted_png+rotated_exif": 1,
    "converted_webp+rotated_exif": 1,
    "converted_tiff+rotated_exif": 1,
}
ENCODED = LOSSLESS | {"rotated_exif": 8}
del ENCODED["rotated_exif_lossless"]


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    yield
    libraries.is_built.cache_clear()


def _lose_library(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path) -> None:
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(folder / "nothing"))
    libraries.is_built.cache_clear()


@pytest.mark.usefixtures("native_op")
def test_phone_photos_stand_upright_after_converters_folder(
    photos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"

    summary = conversions.convert(config(photos, out))

    assert summary["decisions"] == LOSSLESS
    assert orientation_warnings(summary) == []
    stored = _stored(out)
    for path in (photos / "cat").iterdir():
        assert _error(stored[path.name], path) < 2, path.name
    assert index.load(out).made_by["options"]["policy"]["lossless_rotation"] is True
    lines = (out / publish.CHANGES_NAME).read_text().splitlines()
    actions = [json.loads(line)["action"] for line in lines]
    assert actions.count("rotated_exif_lossless") == 7
    assert len(actions) == 11


def test_without_the_library_photos_are_encoded_again_and_a_line_says_so(
    photos: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lose_library(monkeypatch, tmp_path)
    out = tmp_path / "out"

    summary = conversions.convert(config(photos, out))

    assert summary["decisions"] == ENCODED
    stored = _stored(out)
    for path in (photos / "cat").iterdir():
        assert _error(stored[path.name], path) < 4, path.name
    assert index.load(out).made_by["options"]["policy"]["lossless_rotation"] is False
    (line,) = orientation_warnings(summary)
    assert line.startswith("Note: 8 JPEGs turned upright by encoding again.")
    assert line.endswith("-m tfpipe.native")


@pytest.mark.usefixtures("native_op")
def test_a_host_without_the_library_does_not_go_on_with_another_kind_of_turning(
    photos: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    # As if the run were cut off when all its shards are complete.
    monkeypatch.setattr(publish, "publish", lambda job, job_dir: None)
    conversions.convert(config(photos, out))
    monkeypatch.undo()
    built = job.decided(exif_orientation="apply")

    _lose_library(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"lossless_rotation was True, is False"):
        conversions.convert(config(photos, out))
    with pytest.raises(ValueError, match=r"--lossless_rotation needs .* Run: "):
        config(photos, out, policy=built)
    monkeypatch.undo()
    libraries.is_built.cache_clear()

    conversions.convert(config(photos, out))
    assert index.load(out).made_by["decisions"] == LOSSLESS


@pytest.mark.usefixtures("native_op")
def test_repair_turns_as_the_index_says(
    photos: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outs = {}
    for lossless in (True, False):
        outs[lossless] = tmp_path / f"{lossless}"
        choice = Policy(exif_orientation="apply", lossless_rotation=lossless)
        conversions.convert(config(photos, outs[lossless], policy=choice))
    shard = "train-00000-of-00001"
    before = {key: (out / shard).read_bytes() for key, out in outs.items()}
    assert before[True] != before[False]

    def repair(out: pathlib.Path) -> bytes:
        (out / shard).write_bytes(b"")
        rebuild.rebuild(out, Again(Location(str(photos))), [shard], 1)
        return (out / shard).read_bytes()

    assert {key: repair(out) for key, out in outs.items()} == before
    _lose_library(monkeypatch, tmp_path)
    assert repair(outs[False]) == before[False]
    with pytest.raises(ValueError, match=r"--lossless_rotation needs .* Run: "):
        repair(outs[True])


def test_keep_warns_with_the_count_and_the_remedy(
    photos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    policy = Policy(exif_orientation="keep")

    summary = conversions.convert(config(photos, tmp_path / "out", policy=policy))

    assert summary["decisions"]["kept_exif"] == 8
    (line,) = orientation_warnings(summary)
    assert line.startswith("Warning: 11 images stored turned or mirrored")
    assert "--exif_orientation=apply" in line


def test_an_index_of_an_earlier_version_encoded_again() -> None:
    """Its policy "apply" was without loss nowhere."""
    made = {"exif_orientation": "apply"}

    assert Policy(**made).lossless_rotation is False


def test_upright_photos_need_no_line() -> None:
    config = {"policy": {"lossless_rotation": False}}
    for decisions in ({"kept": 3}, {}, {"converted_png+rotated_exif": 2}):
        summary = {"config": config, "decisions": decisions}
        assert orientation_warnings(summary) == []
    assert orientation_warnings({"config": config}) == []

"""converters.folder on a folder as people keep their photos."""

import io
import json
import pathlib
import sys
import types
from typing import Any

import PIL.Image
import pytest

import tfpipe
from converters.conversion import summary
from converters.images.policy import Policy
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.own_photos import OwnPhotos, make_own_photos
from tests.support.data.trees import make_jpeg
from tfpipe import imagenet_eval
from tfpipe.pictures import formats
from tfpipe.shards import index

HEIC = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom"
FRACTIONS = {"train": 0.6, "validation": 0.2, "test": 0.2}


@pytest.fixture(autouse=True)
def no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pillow-heif is installed here must not matter."""
    monkeypatch.setattr(formats, "_HEIF_PLUGINS", ("no_such_plugin",))
    PIL.Image.init()
    monkeypatch.setattr(PIL.Image, "ID", list(PIL.Image.ID))
    opens = {kind: o for kind, o in PIL.Image.OPEN.items() if kind != "HEIF"}
    monkeypatch.setattr(PIL.Image, "OPEN", opens)


def convert(root: pathlib.Path, out: pathlib.Path, **options: object) -> dict[str, int]:
    """Converts, and returns the number of images by decision."""
    return dict(_convert(root, out, **options)["decisions"])


def _convert(
    root: pathlib.Path, out: pathlib.Path, **options: object
) -> dict[str, dict[str, int]]:
    config = conversion(
        "folder",
        input_dir=str(root),
        output_dir=str(out),
        num_workers=1,
        fsync=False,
        **options,  # type: ignore[arg-type]
    )
    return conversions.convert(config)


def rejects(out: pathlib.Path) -> dict[str, dict[str, str]]:
    lines = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
    return {line["name"]: line for line in lines}


def stored(out: pathlib.Path) -> set[str]:
    columns = [
        index.load_catalog(out, split, ["filename"]) for split in index.load(out).splits
    ]
    return {name for column in columns for name in column["filename"]}


def write(path: pathlib.Path, kind: str, color: str = "red") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (20, 16), color).save(path, kind)


# suffixes


def test_photos_of_any_suffix_are_converted(tmp_path: pathlib.Path) -> None:
    of_name = {
        "scan.TIF": "TIFF",
        "scan.tiff": "TIFF",
        "browser.jfif": "JPEG",
        "old.jpe": "JPEG",
        "paint.dib": "BMP",
        "map.jp2": "JPEG2000",
        "double.jpg.TIFF": "TIFF",
        "lying.tif": "JPEG",
    }
    for name, kind in of_name.items():
        write(tmp_path / "raw" / "a" / name, kind)

    found = convert(tmp_path / "raw", tmp_path / "out")

    assert stored(tmp_path / "out") == {f"a/{name}" for name in of_name}
    assert found == {
        "converted_bmp": 1,
        "converted_jpeg2000": 1,
        "converted_tiff": 3,
        "kept": 3,
    }


def test_files_that_are_no_photos_are_named_and_not_opened(
    tmp_path: pathlib.Path,
) -> None:
    write(tmp_path / "raw" / "a" / "1.jpg", "JPEG")
    others = (
        "Thumbs.db",
        "notes.txt",
        "meta.json",
        "clip.mp4",
        "1.heic.txt",
        "raw.CR2",
    )
    for name in others:
        (tmp_path / "raw" / "a" / name).symlink_to("/proc/self/mem")

    found = convert(tmp_path / "raw", tmp_path / "out")

    named = rejects(tmp_path / "out")
    assert found == {"kept": 1, "ignored_other_name": len(others)}
    assert named.keys() == {f"a/{name}" for name in others}


def test_heic_without_its_plugin_is_named_with_what_to_install(
    tmp_path: pathlib.Path,
) -> None:
    write(tmp_path / "raw" / "a" / "1.jpg", "JPEG")
    (tmp_path / "raw" / "a" / "IMG_1.HEIC").write_bytes(HEIC + bytes(99))
    (tmp_path / "raw" / "a" / "video.heic").write_bytes(MP4 + bytes(99))

    found = convert(tmp_path / "raw", tmp_path / "out")

    named = rejects(tmp_path / "out")
    assert found["skipped_no_decoder"] == found["skipped_not_an_image"] == 1
    assert "pip install pillow-heif" in named["a/IMG_1.HEIC"]["detail"]
    assert named["a/video.heic"]["reason"] == "not_an_image"


def test_folder_of_heic_alone_fails_and_says_what_to_install(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "raw" / "a" / "IMG_1.HEIC"
    path.parent.mkdir(parents=True)
    path.write_bytes(HEIC + bytes(99))

    with pytest.raises(ValueError, match=r"'no_decoder': 1.*pip install pillow-heif"):
        convert(tmp_path / "raw", tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_heic_is_converted_once_the_plugin_is_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for the plug-in reads a PNG behind the header of a HEIC."""

    def opener(file: io.BytesIO, name: str) -> PIL.Image.Image:
        image = PIL.Image.open(io.BytesIO(file.read()[len(HEIC) :]))
        image.info["exif"] = None  # as pillow-heif gives it
        return image

    def register() -> None:
        PIL.Image.register_open("HEIF", opener, lambda start: start[4:8] == b"ftyp")

    plugin = types.ModuleType("stand_in_plugin")
    plugin.register_heif_opener = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stand_in_plugin", plugin)
    monkeypatch.setattr(formats, "_HEIF_PLUGINS", ("no_such_plugin", "stand_in_plugin"))
    path = tmp_path / "raw" / "a" / "IMG_1.HEIC"
    write(path, "PNG")
    path.write_bytes(HEIC + path.read_bytes())

    assert convert(tmp_path / "raw", tmp_path / "out") == {"converted_heif": 1}


# splits


def test_folder_named_test_is_a_split_that_tfpipe_reads(tmp_path: pathlib.Path) -> None:
    for number, name in enumerate(
        ("train/a/1.jpg", "train/b/1.jpg", "test/a/1.jpg", "test/b/1.jpg")
    ):
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))

    _convert(tmp_path / "raw", tmp_path / "out", num_test_shards=2)

    pipeline = imagenet_eval(
        tmp_path / "out", split="test", batch_size=2, image_size=32
    )
    (batch,) = pipeline.build().as_numpy_iterator()
    assert sorted(batch["label"].tolist()) == [0, 1]
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
    assert [split["name"] for split in info["splits"]] == ["train", "test"]
    assert sorted(p.name for p in (tmp_path / "out" / "dali_idx").iterdir()) == [
        "test-00000-of-00002",
        "test-00001-of-00002",
        "train-00000-of-00001",
    ]


@pytest.mark.parametrize("name", ["test/1.jpg", "test/1.heic"])
def test_test_images_without_classes_are_left_out_and_named(
    tmp_path: pathlib.Path, name: str
) -> None:
    for path in ("train/a/1.jpg", name):
        write(tmp_path / "raw" / path, "JPEG")

    found = convert(tmp_path / "raw", tmp_path / "out")

    assert found == {"kept": 1, "ignored_not_a_split": 1}
    assert "test/" in rejects(tmp_path / "out")


# all of it


@pytest.fixture(scope="module")
def photos(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[OwnPhotos, pathlib.Path]:
    root = tmp_path_factory.mktemp("own_photos")
    return make_own_photos(root), root


def test_own_photos_are_stored_or_named(
    photos: tuple[OwnPhotos, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    truth, root = photos

    _convert(root, tmp_path)

    named = {name: line["reason"] for name, line in rejects(tmp_path).items()}
    assert stored(tmp_path) == truth.sizes.keys()
    assert named == {
        truth.broken: "truncated",
        truth.heic: "no_decoder",
        truth.other: "other_name",
    }
    assert [name for name, _ in index.load(tmp_path).classes] == truth.class_names
    labels = index.load_catalog(tmp_path, "train", ["label"])["label"].tolist()
    counts = [labels.count(label + 1) for label in range(len(truth.class_names))]
    assert dict(zip(truth.class_names, counts, strict=True)) == truth.counts


def test_summary_says_what_was_left_out_and_how_to_go_on(
    photos: tuple[OwnPhotos, pathlib.Path],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, root = photos
    policy = Policy(exif_orientation="apply", decode="header")

    summary.print_summary(
        _convert(root, tmp_path, split_fractions=FRACTIONS, policy=policy)
    )

    text = capsys.readouterr().out
    assert f"{tmp_path}/rejects.jsonl says which, why and what to do" in text
    assert "Not decoded: " in text
    assert "wrong pixels, in about 1 s more" in text
    assert "tfpipe counts labels from 0; classes.tsv and class_names" in text
    assert "of 5 classes, 1 each" in text
    calls = [line for line in text.splitlines() if "= tfpipe." in line]
    found: dict[str, Any] = {"tfpipe": tfpipe}
    for call in calls:  # what is proposed runs as it is
        exec(call.strip(), found)
    assert all(found[split].source.split == split for split in FRACTIONS)


def test_summary_prints_odd_names_on_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("line\nbreak", "日本", "\udcff"):
        write(tmp_path / "raw" / name / "1.jpg", "JPEG")
    write(tmp_path / "raw" / "日本" / "2.jpg", "JPEG", "blue")

    summary.print_summary(_convert(tmp_path / "raw", tmp_path / "out"))

    line = capsys.readouterr().out.splitlines()[1]
    assert line.split(maxsplit=1)[1] == (
        "4 records of 3 classes, 1 (line\\nbreak) to 2 (日本) images each"
    )

"""converters.synthesize: the tree, its options, and what it may replace."""

import collections
import io
import pathlib
import shutil

import pytest
from PIL import Image

from converters import synthesize
from converters.inputs import classes
from tests.support.data.trees import folder_at

_FEW = {"num_images": 6, "num_validation_images": 0}
_COUNTS = {"num_images": 23, "num_classes": 5, "num_validation_images": 7}


def _config(
    output_dir: pathlib.Path, **changes: object
) -> synthesize.SynthesizeOptions:
    settings = {"output_dir": output_dir, "size_scale": 0.1, "num_workers": 1}
    settings |= {**_COUNTS, **changes}
    return synthesize.SynthesizeOptions(**settings)


def _contents(root: pathlib.Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A small complete tree, and the number of its images, bytes and pixels."""
    root = tmp_path_factory.mktemp("synthesize") / "raw"
    totals = synthesize.synthesize(_config(root))
    return root, totals


def test_layout_is_that_of_imagenet(tree):
    root, totals = tree
    wnids = [one.synset for one in classes.imagenet_classes()[:5]]

    names = set(_contents(root))

    validation = {f"val/ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 8)}
    train = {f"train/{w}/{w}_{k}.JPEG" for w in wnids for k in range(1, 5)}
    train |= {f"train/{w}/{w}_5.JPEG" for w in wnids[:3]}
    assert names == validation | train | {"synset_labels.txt", ".synthesized.json"}
    assert totals.images == 30
    assert totals.bytes == sum(p.stat().st_size for p in root.rglob("*.JPEG"))


def test_validation_labels_are_balanced_to_within_one(tree):
    root, _ = tree

    labels = (root / "synset_labels.txt").read_text().splitlines()

    counts = collections.Counter(labels)
    assert len(labels) == 7
    assert sorted(counts.values()) == [1, 1, 1, 2, 2]
    assert labels != sorted(labels)


def test_validation_order_depends_on_the_seed(tmp_path):
    def order(seed: int) -> list[int]:
        config = _config(tmp_path, seed=seed, num_validation_images=40)
        return [i.class_index for i in synthesize.plan(config, list("abcde"))[23:]]

    assert order(0) == order(0)
    assert order(0) != order(1)


def test_every_file_is_a_baseline_jpeg(tree):
    root, totals = tree
    width = 0

    for path in root.rglob("*.JPEG"):
        image = Image.open(io.BytesIO(path.read_bytes()))
        image.load()
        assert image.format == "JPEG"
        assert image.mode in ("RGB", "L")
        assert "progressive" not in image.info
        width += image.width

    assert width == totals.width


def test_other_seed_makes_other_images(tree, tmp_path):
    root, _ = tree

    synthesize.synthesize(_config(tmp_path / "raw", seed=1, **_FEW))

    ours, theirs = _contents(tmp_path / "raw"), _contents(root)
    images = [name for name in ours if name.endswith(".JPEG")]
    assert len(images) == 6
    assert not [name for name in images if ours[name] == theirs[name]]


def test_more_images_keep_the_first_ones(tree, tmp_path):
    root, _ = tree

    synthesize.synthesize(_config(tmp_path / "raw", **_FEW))

    ours = _contents(tmp_path / "raw")
    train = {k: v for k, v in ours.items() if k.startswith("train")}
    assert len(train) == 6
    assert train.items() <= _contents(root).items()


@pytest.mark.parametrize(
    "changes", [{"num_images": 1001, "num_classes": 1001}, {"made_up_synsets": True}]
)
def test_made_up_synsets_are_listed(tmp_path, changes):
    config = _config(tmp_path / "raw", **changes)

    synsets = synthesize.list_classes(config)

    real = {one.synset for one in classes.imagenet_classes()}
    assert len(synsets) == config.num_classes
    assert not real & {one.synset for one in synsets}
    assert len({one.text for one in synsets}) == config.num_classes


def test_class_lists_of_made_up_synsets_can_be_read_back(tmp_path):
    root = tmp_path / "raw"
    config = _config(root, made_up_synsets=True, **_FEW)

    synthesize.synthesize(config)

    assert classes.read_classes(folder_at(root)) == synthesize.list_classes(config)
    assert not (root / "synset_labels.txt").exists()
    assert not (root / "val").exists()
    folders = sorted(path.name for path in (root / "train").iterdir())
    assert folders == (root / "synsets.txt").read_text().split()


def test_bytes_per_pixel_scales_the_files(tmp_path):
    few = synthesize.synthesize(
        _config(tmp_path / "few", size_scale=0.4, bytes_per_pixel=0.3, **_FEW)
    )
    many = synthesize.synthesize(
        _config(tmp_path / "many", size_scale=0.4, bytes_per_pixel=0.9, **_FEW)
    )

    assert few.width == many.width
    assert many.bytes / few.bytes == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_images": 4}, "4 images for 5 classes. Ask for more"),
        ({"num_classes": 100_001, "num_images": 100_001}, "from 1 to 100000"),
        ({"num_classes": 0}, "from 1 to 100000"),
    ],
)
def test_wrong_numbers_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        _config(tmp_path / "raw", **changes)


def test_folder_that_holds_files_is_refused(tmp_path):
    (tmp_path / "precious").write_text("kept")

    with pytest.raises(ValueError, match="pass --overwrite to replace it"):
        synthesize.synthesize(_config(tmp_path))

    assert _contents(tmp_path) == {"precious": b"kept"}


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ValueError, match="must be a folder, got the file"):
        synthesize.synthesize(_config(tmp_path / "file", overwrite=True))


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match=r"in a folder that can be written.*Choose"):
        synthesize.synthesize(_config(tmp_path / "file" / "raw"))


@pytest.fixture
def copied(tree, tmp_path):
    """A copy of the tree, to be replaced."""
    return pathlib.Path(shutil.copytree(tree[0], tmp_path / "raw"))


def test_overwrite_replaces_a_tree_of_its_own(copied, tmp_path):
    synthesize.synthesize(_config(copied, num_images=6, overwrite=True))

    assert len(list(copied.glob("train/*/*"))) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def _fail(*_: object, **__: object) -> None:
    raise OSError("No space left on device")


def test_failure_leaves_the_old_tree_and_nothing_else(copied, tmp_path, monkeypatch):
    before = _contents(tmp_path)
    monkeypatch.setattr(synthesize.scenes, "make_image", _fail)

    with pytest.raises(OSError, match="No space left"):
        synthesize.synthesize(_config(copied, overwrite=True))

    assert _contents(tmp_path) == before


@pytest.mark.parametrize(
    "files",
    [
        ["train/n01440764/n01440764_1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"],
        ["synsets.txt"],
        ["train/n01440764/mine.JPEG", ".synthesized.json"],
    ],
)
def test_overwrite_spares_a_tree_that_no_run_wrote(tmp_path, files):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept")

    with pytest.raises(ValueError, match=r"has no \.synthesized\.json that says so"):
        synthesize.synthesize(_config(tmp_path, overwrite=True))

    assert _contents(tmp_path) == dict.fromkeys(files, b"kept")


@pytest.mark.parametrize("name", ["thesis.tex", "train/n01440764/mine.JPEG"])
def test_overwrite_spares_what_was_added_to_a_tree(copied, name):
    (copied / name).write_text("kept")

    with pytest.raises(ValueError, match=f"holds {name} too"):
        synthesize.synthesize(_config(copied, overwrite=True))

    assert (copied / name).read_text() == "kept"


def test_overwrite_spares_what_a_link_in_a_tree_leads_to(copied, tmp_path):
    (tmp_path / "photos").mkdir()
    (copied / "train" / "more").symlink_to(tmp_path / "photos")

    with pytest.raises(ValueError, match="holds train/more too"):
        synthesize.synthesize(_config(copied, overwrite=True))

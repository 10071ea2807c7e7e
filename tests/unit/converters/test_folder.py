"""converters.folder, classtree, summary: any class-per-directory tree."""

import collections
import json
import os
import pathlib

import pytest

from converters import folder
from converters.inputs import listing
from converters.inputs.classtree import TreeReader
from converters.inputs.image import Image
from converters.inputs.labels import read_label_map
from converters.jobs import plan
from tests.support.data import conversions
from tests.support.data.conversions import Conversion, conversion, read_listed
from tests.support.data.trees import make_jpeg


def write(root: pathlib.Path, *names: str, seed: int = 0) -> pathlib.Path:
    """Writes a different small picture under each name."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(seed + number))
    return root


def config(root: pathlib.Path, out: pathlib.Path, **options: object) -> Conversion:
    return conversion(
        "folder",
        input_dir=str(root),
        output_dir=str(out),
        num_workers=1,
        fsync=False,
        **options,  # type: ignore[arg-type]
    )


def listed(root: pathlib.Path, **options: object) -> dict[str, dict[str, int]]:
    """Returns the label of each image by name, for each split of the plan."""
    job = conversions.make_job(config(root, root / "none", **options))
    found: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for shard in job.plans:
        for image in shard.images:
            found[shard.split][image.name] = job.classes[image.class_index].label
    return dict(found)


def test_classes_are_the_paths_of_the_folders_with_images(
    tmp_path: pathlib.Path,
) -> None:
    write(tmp_path, "cat/a.jpg", "dog/big/a.JPEG", "dog/b.png", "dog/small/old/c.WebP")
    write(tmp_path, "bird/a.bmp", "bird/b.GIF")

    tree = read_listed(TreeReader(input_dir=str(tmp_path)))

    assert tree.class_names() == ["bird", "cat", "dog", "dog/big", "dog/small/old"]
    assert listed(tmp_path) == {
        "train": {
            "bird/a.bmp": 1,
            "bird/b.GIF": 1,
            "cat/a.jpg": 2,
            "dog/b.png": 3,
            "dog/big/a.JPEG": 4,
            "dog/small/old/c.WebP": 5,
        }
    }


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_split_folders_are_splits_with_one_class_list(
    tmp_path: pathlib.Path, validation: str
) -> None:
    write(tmp_path, "train/b/1.jpg", "train/c/1.jpg", f"{validation}/a/1.jpg")
    write(tmp_path, "test/b/1.jpg", "old/b/1.jpg", "readme.txt", "loose.jpg")

    tree = read_listed(TreeReader(input_dir=str(tmp_path)))

    assert listed(tmp_path) == {
        "train": {"train/b/1.jpg": 2, "train/c/1.jpg": 3},
        "validation": {f"{validation}/a/1.jpg": 1},
        "test": {"test/b/1.jpg": 2},
    }
    assert listing.count(tree.left_out) == {
        "not_a_split": 1,
        "other_name": 1,
        "no_class_folder": 1,
    }


def test_a_class_may_be_called_train(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "train/1.jpg", "plane/1.jpg")

    assert listed(tmp_path) == {"train": {"train/1.jpg": 2, "plane/1.jpg": 1}}


def test_what_is_left_out_is_counted(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "a/1.jpg", "a/notes.txt", "loose.jpg", ".hidden/1.jpg")
    (tmp_path / "a" / "x.JPEG").mkdir()
    (tmp_path / "a" / "gone.jpg").symlink_to("nowhere")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    (tmp_path / "b").mkdir()

    tree = read_listed(TreeReader(input_dir=str(tmp_path)))

    assert tree.class_names() == ["a"]
    assert listing.count(tree.left_out) == {
        "dangling_link": 1,
        "empty_folder": 1,
        "link_loop": 1,
        "no_class_folder": 1,
        "not_a_file": 1,
        "other_name": 2,
    }


def test_linked_class_folder_is_read(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "aside", "1.jpg")
    write(tmp_path / "raw", "a/1.jpg")
    (tmp_path / "raw" / "b").symlink_to(tmp_path / "aside")

    assert listed(tmp_path / "raw") == {"train": {"a/1.jpg": 1, "b/1.jpg": 2}}


@pytest.mark.parametrize(
    ("text", "options", "labels"),
    [
        ("0 b\n1 a\n", {}, {"b": 0, "a": 1}),
        ("2 a\n1: b b\n", {}, {"b b": 1, "a": 2}),
        ("1:b\n\n2:a:z\n", {"label_base": 1}, {"b": 1, "a:z": 2}),
        ("b\na c\n", {}, {"b": 1, "a c": 2}),
        ("b\na\n", {"label_base": 0}, {"b": 0, "a": 1}),
        ("7\n3\n", {}, {"7": 1, "3": 2}),
    ],
)
def test_label_map_has_numbered_classes_or_classes_in_order(
    tmp_path: pathlib.Path,
    text: str,
    options: dict[str, int],
    labels: dict[str, int],
) -> None:
    path = tmp_path / "map.txt"
    path.write_text(text)

    found = read_label_map(path, options.get("label_base"))

    assert list(found.items()) == list(labels.items())


@pytest.mark.parametrize(
    ("text", "label_base", "message"),
    [
        ("", None, "map.txt must name at least one class"),
        ("2 a\n3 b\n", None, "map.txt must start at 0 or 1, got 2"),
        ("0 a\n1 b\n", 1, "map.txt must start at --label_base=1, got 0"),
        ("0 a\n2 b\n", None, r"got 2 \(b\) where 1 is due"),
        ("0 a\n0 b\n", None, r"got 0 \(b\) where 1 is due"),
        ("a\na\n", None, "must name each class once, got 'a' twice"),
    ],
)
def test_bad_label_map_is_an_error(
    tmp_path: pathlib.Path, text: str, label_base: int | None, message: str
) -> None:
    path = tmp_path / "map.txt"
    path.write_text(text)

    with pytest.raises(ValueError, match=message):
        read_label_map(path, label_base)


def test_subset_of_classes_keeps_labels_and_class_list(tmp_path: pathlib.Path) -> None:
    root = write(
        tmp_path / "raw", *(f"{name}/{n}.jpg" for name in "abcd" for n in "12")
    )

    job = conversions.make_job(config(root, tmp_path, classes=("d", "b"), label_base=0))

    found = {image.name: image.class_index for image in job.plans[0].images}
    assert found == {"b/1.jpg": 1, "b/2.jpg": 1, "d/1.jpg": 3, "d/2.jpg": 3}
    assert [(c.label, c.synset) for c in job.classes] == list(enumerate("abcd"))
    assert job.ignored == {"other_class": 4}


@pytest.mark.parametrize(
    ("num_images", "fraction", "held_out"),
    [
        (10, 0.2, 2),
        (10, 0.25, 3),
        (10, 0.01, 1),
        (2, 0.99, 1),
        (1, 0.5, 0),
        (7, 0.5, 4),
    ],
)
def test_validation_fraction_is_taken_of_each_class(
    tmp_path: pathlib.Path, num_images: int, fraction: float, held_out: int
) -> None:
    names = [f"{c}/{n}.jpg" for c in ("a", "b") for n in range(num_images)]
    root = write(tmp_path, *names, "c/1.jpg", "c/2.jpg")

    found = listed(root, validation_fraction=fraction)

    counts = collections.Counter(found["validation"].values())
    assert (counts[1], counts[2], counts[3]) == (held_out, held_out, 1)
    assert sorted([*found["train"], *found["validation"]]) == sorted(
        [*names, "c/1.jpg", "c/2.jpg"]
    )


def test_what_is_held_out_depends_on_names_and_seed_only(
    tmp_path: pathlib.Path,
) -> None:
    names = [f"a/{n}.jpg" for n in range(40)]
    one = write(tmp_path / "one", *names)
    other = write(tmp_path / "other", *names[::-1], "b/1.jpg", "b/2.jpg", seed=99)

    def held_out(root: pathlib.Path, seed: int) -> set[str]:
        found = listed(root, validation_fraction=0.25, seed=seed)["validation"]
        return {name for name in found if name.startswith("a/")}

    assert held_out(one, 0) == held_out(other, 0)
    assert held_out(one, 0) != held_out(one, 1)


def test_bad_options_are_errors(tmp_path: pathlib.Path) -> None:
    root = write(tmp_path / "raw", "train/a/1.jpg", "val/a/1.jpg")
    flat = write(tmp_path / "flat", "a/1.jpg", "b/1.jpg")
    label_map = tmp_path / "map.txt"
    label_map.write_text("a\n")
    for wrong, options, message in [
        (root, {"validation_fraction": 0.1}, "already has a validation split"),
        (root, {"validation_fraction": 1.0}, r"--validation_fraction must be.*got 1.0"),
        (flat, {"validation_fraction": 0.5}, "Split validation must have at least one"),
        (
            flat,
            {"classes": ("c",)},
            "--classes must name classes of the input, got 'c'",
        ),
        (flat, {"label_map": str(label_map)}, "but lacks 1, the first is 'b'"),
        (tmp_path / "no", {}, "--input_dir must be a folder.*no such folder"),
        (flat / "a", {}, "must hold a folder for each class.*got none"),
    ]:
        with pytest.raises(ValueError, match=message):
            conversions.make_job(config(wrong, tmp_path / "out", **options))
    write(root, "validation/a/1.jpg")
    with pytest.raises(
        ValueError, match="one validation split, got val/ and validation"
    ):
        conversions.make_job(config(root, tmp_path / "out"))


def test_class_outside_the_label_map_may_be_left_out(tmp_path: pathlib.Path) -> None:
    root = write(tmp_path / "raw", "a/1.jpg", "b/1.jpg")
    (tmp_path / "map.txt").write_text("a\n")

    options = {"label_map": str(tmp_path / "map.txt"), "classes": ("a",)}

    assert listed(root, **options) == {"train": {"a/1.jpg": 1}}


def test_odd_class_names_are_fit_for_text_files(tmp_path: pathlib.Path) -> None:
    names = ["two words", "line\nbreak", os.fsdecode(b"\xff"), "\u65e5\u672c"]
    write(tmp_path, *(f"{name}/1.jpg" for name in names))

    job = conversions.make_job(config(tmp_path, tmp_path / "out"))

    assert {(c.synset, c.text) for c in job.classes} == {
        ("two words", "two words"),
        ("line\nbreak", "line\\nbreak"),
        ("\\udcff", "\\udcff"),
        ("\u65e5\u672c", "\u65e5\u672c"),
    }
    assert "\udcff/1.jpg" in {image.name for image in job.plans[0].images}


def test_flags_become_the_config() -> None:
    label_map = ["--label_map=map"]

    found = folder.COMMANDS[0].parse(
        ["in", "out", "--seed=3", "--classes=a b, c", "--label_base=0", *label_map]
    )

    assert (found.input_dir, found.output_dir, found.seed) == ("in", "out", 3)
    assert (found.classes, found.label_base) == (("a b", "c"), 0)
    assert (found.label_map, found.validation_fraction) == ("map", 0.0)
    assert json.loads(json.dumps(found.to_json()))["classes"] == ["a b", "c"]


def test_same_plan_for_a_tree_wherever_it_lies(tmp_path: pathlib.Path) -> None:
    names = [f"{c}/{n}.jpg" for c in "ab" for n in range(8)]
    plans: list[list[plan.ShardPlan]] = []
    for place in ("one", "other/place"):
        root = write(tmp_path / place, *names)
        plans.append(list(conversions.make_job(config(root, tmp_path / "out")).plans))

    assert plans[0] == plans[1]
    assert isinstance(plans[0][0].images[0], Image)


def test_class_depth_takes_the_first_folders_as_the_class(
    tmp_path: pathlib.Path,
) -> None:
    write(tmp_path, "cat/a.jpg", "cat/old/b.jpg", "cat/old/x/c.jpg", "dog/new/d.jpg")

    assert listed(tmp_path, class_depth=1) == {
        "train": {
            "cat/a.jpg": 1,
            "cat/old/b.jpg": 1,
            "cat/old/x/c.jpg": 1,
            "dog/new/d.jpg": 2,
        }
    }
    job = conversions.make_job(config(tmp_path, tmp_path / "none", class_depth=2))
    assert [item.synset for item in job.classes] == ["cat", "cat/old", "dog/new"]


def test_the_layout_of_tiny_imagenet(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "train/n1/images/n1_0.JPEG", "train/n1/n1_boxes.txt")
    write(tmp_path, "train/n2/images/n2_0.JPEG", "test/images/test_0.JPEG")
    write(tmp_path, *(f"val/images/val_{n}.JPEG" for n in range(3)))
    annotations = "val_0.JPEG\tn2\t0\t0\t9\t9\nval_1.JPEG\tn1\t0\t0\t9\t9\n"
    (tmp_path / "val" / "val_annotations.txt").write_text(annotations)

    tree = read_listed(TreeReader(input_dir=str(tmp_path)))

    assert listed(tmp_path) == {
        "train": {"train/n1/images/n1_0.JPEG": 1, "train/n2/images/n2_0.JPEG": 2},
        "validation": {"val/images/val_0.JPEG": 2, "val/images/val_1.JPEG": 1},
    }
    assert tree.class_names() == ["n1", "n2"]
    assert listing.count(tree.left_out) == {
        "no_class_folder": 1,
        "no_label": 1,
        "other_name": 2,
    }

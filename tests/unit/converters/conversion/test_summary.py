"""converters.conversion.summary: figures for the summary of a finished data set."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from converters.conversion import summary
from converters.images.policy import Policy
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, make_jpeg, make_tree
from tfpipe.location.location import Location
from tfpipe.shards import index


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    root = make_tree(tmp_path_factory.mktemp("raw"), num_images=20)
    (root / "synsets.txt").write_text("\n".join((*SYNSETS, "n0")))
    config = conversion(
        "imagenet",
        input_dir=str(root),
        output_dir=str(root / "none"),
        num_workers=2,
        policy=Policy(decode="header"),
    )
    return conversions.make_job(config)


def test_full_decode_scales_the_time_of_a_few_images(job: Job) -> None:
    ticks = (number // 2 * 10.0 + number % 2 * 0.5 for number in itertools.count())

    found = summary.full_decode(
        job, {"kept": 15, "kept_exif": 5, "converted_png": 9}, clock=lambda: next(ticks)
    )

    # Half a second an image, 20 images, two workers.
    assert found == {"num_images": 20, "seconds": 5.0}


@pytest.mark.parametrize(
    ("policy", "decisions"),
    [
        (Policy(decode="full"), {"kept": 5}),
        (Policy(quality=90), {"kept": 5}),
        (Policy(), {"converted_png": 5}),
    ],
)
def test_no_image_is_left_to_decode(
    job: Job, policy: Policy, decisions: dict[str, int]
) -> None:
    assert (
        summary.full_decode(dataclasses.replace(job, policy=policy), decisions) is None
    )


def test_input_that_is_gone_gives_no_figure(job: Job, tmp_path: pathlib.Path) -> None:
    gone = dataclasses.replace(job, input_dir=Location(str(tmp_path)))

    assert summary.full_decode(gone, {"kept": 5}) is None


def test_images_are_counted_by_class(data_dir: pathlib.Path) -> None:
    known = index.load(data_dir)

    found = summary.class_counts(data_dir, known)

    for split in ("train", "validation"):
        labels = index.load_catalog(data_dir, split, ["label"])["label"].tolist()
        counts = {label: labels.count(label) for label in set(labels)}
        spread = found[split]
        assert spread["num_classes"] == len(counts)
        first = min(counts, key=lambda label: (counts[label], label))
        assert spread["smallest"] == {
            "class": known.classes[first - known.label_base][1],
            "num_images": counts[first],
        }
        assert spread["largest"]["num_images"] == max(counts.values())
        assert spread["num_without_images"] == 1000 - len(counts)
        assert len(spread["first_without_images"]) == 3


def test_a_catalog_that_is_gone_gives_no_counts(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    assert summary.class_counts(tmp_path, index.load(data_dir)) == {}


@pytest.mark.parametrize(
    ("classes", "options", "line"),
    [
        (("a", "b"), {}, "labels count from 1: the classes are names\n"),
        (("a", "b"), {"label_base": 0}, "labels count from 0: --label_base=0\n"),
        (("0", "1"), {}, "labels count from 0: a label is 0\n"),
        (("1", "2"), {}, "labels count from 1: no label is 0\n"),
    ],
)
def test_the_first_label_is_printed_with_its_reason(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    classes: Sequence[str],
    options: dict[str, Any],
    line: str,
) -> None:
    for number, name in enumerate(classes):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "a.jpg").write_bytes(make_jpeg(number))
    out = str(tmp_path / "out")
    config = conversion(
        "folder",
        input_dir=str(tmp_path / "in"),
        output_dir=out,
        num_workers=1,
        **options,
    )

    summary.print_summary(conversions.convert(config))

    printed = capsys.readouterr().out
    assert line in printed
    document = json.loads(printed.splitlines()[-1])
    found = f"labels count from {document['label_base']}: {document['label_reason']}\n"
    assert found == line

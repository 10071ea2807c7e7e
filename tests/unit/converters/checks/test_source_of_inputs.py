"""verify --level=source and --repair with --input: every input that is no folder."""

import pathlib
import types
from typing import Any

import pytest

from converters import verify
from converters.checks import dataset
from converters.checks.shard import Result
from converters.jobs.again import Again
from tests.support.data.carried import converted_back, exported, make_table
from tests.support.data.inputs import KINDS, Images, convert_input
from tests.support.faults.damage import flip
from tfpipe.location.location import Location
from tfpipe.shards import index

IMAGES = [("train", "a"), ("train", "b"), ("test", "a"), ("train", "a")]
OPENED_AGAIN = [kind for kind in KINDS if kind not in ("folder", "imagenet")]
OPENED_AGAIN.remove("data_set")


def _converted(kind: str, root: pathlib.Path, images: Images) -> dict[str, Any]:
    """Converts an input, and returns the options that name it."""
    made = convert_input(kind, root, images, num_workers=1, fsync=False)
    made.convert()
    fields = made.reader.to_json()
    places = fields.get("input") or [f"{n}={p}" for n, p in fields["sources"].items()]
    root_of = [fields["root"]] if fields.get("root") else []
    return {"input": [places] if isinstance(places, str) else places, "root": root_of}


def _repair_flipped(data_dir: pathlib.Path, **places: Any) -> None:
    """Flips a byte of a shard, and checks that a repair takes the flip back."""
    (shard, *_) = index.load(data_dir).splits["train"]
    before = (data_dir / shard.name).read_bytes()
    flip(data_dir / shard.name, 99)
    assert _verify(data_dir, **places).num_faults
    assert _verify(data_dir, repair=True, **places).num_faults == 0
    assert (data_dir / shard.name).read_bytes() == before


def _verify(data_dir: pathlib.Path, **options: Any) -> Result:
    values = {"level": "source", "num_workers": 1} | options
    return verify.verify(verify.VerifyOptions(data_dir=str(data_dir), **values))


@pytest.mark.parametrize("kind", OPENED_AGAIN)
def test_images_are_compared_with_the_input_and_shards_made_again(
    kind: str, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    places = _converted(kind, tmp_path / "in", IMAGES)

    done = _verify(out, **places)
    assert (done.faults, done.details["num_not_comparable"]) == ([], 0)

    _repair_flipped(out, **places)


@pytest.mark.parametrize("in_records", [False, True])
def test_features_of_extra_columns_and_all_labels_are_written_again(
    in_records: bool, tmp_path: pathlib.Path
) -> None:
    data_dir = make_table(tmp_path, extra_in_records=in_records)
    _repair_flipped(data_dir, input=[str(tmp_path / "t.parquet")])

    done = exported(data_dir, tmp_path / "tree", "tree")
    back = converted_back(done, tmp_path / "back")
    _repair_flipped(back, input_dir=str(tmp_path / "tree"))


@pytest.mark.parametrize("kind", OPENED_AGAIN)
def test_an_input_with_other_images_is_found(kind: str, tmp_path: pathlib.Path) -> None:
    _converted(kind, tmp_path / "in", IMAGES)
    other = [("train", "a=5"), *IMAGES[1:3]]
    places = _converted(kind, tmp_path / "other" / "in", other)

    done = _verify(tmp_path / "out", **places)

    texts = [fault.fault for fault in done.faults]
    assert sum("bytes of the source" in text for text in texts) == 1
    assert sum("the input must hold the image" in text for text in texts) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the input that was converted"),
        ({"input": ["x"], "input_dir": "y"}, "and not both"),
    ],
)
def test_one_input_is_needed(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        verify.VerifyOptions(data_dir="x", level="source", **options)


def test_an_input_that_cannot_be_opened_again_is_named(tmp_path: pathlib.Path) -> None:
    convert_input("folder", tmp_path / "in", IMAGES, num_workers=1).convert()
    with pytest.raises(ValueError, match=r"got one of converters\.folder\. Images of"):
        _verify(tmp_path / "out", input=[str(tmp_path / "in")])
    _converted("merge", tmp_path / "m" / "in", IMAGES)
    with pytest.raises(ValueError, match=r"as NAME=PLACE for each source .* a; got"):
        _verify(tmp_path / "m" / "out", input=["b=x"])


def test_a_password_is_not_shown() -> None:
    places = ["web=mysql://u:secret@h/b", "postgresql://u:sec=ret@h/b", "t=x.tar"]
    config = verify.VerifyOptions(data_dir="x", level="source", input=places)

    text = str(verify.summarize(config, Result(0, 0, 0), 0.1))

    assert "sec" not in text.replace("seconds", "")
    assert "'t=x.tar'" in text


def test_a_tree_without_any_image_of_a_split_is_refused(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    again = Again(Location(str(tmp_path)))
    request: Any = types.SimpleNamespace(data_dir=data_dir, level="source", again=again)

    with pytest.raises(ValueError, match=r"must hold the image .*, got none"):
        dataset._images(request, "train")

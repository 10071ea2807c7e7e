import pytest

import tfpipe
from tests.support.data.foreign import write_shard
from tfpipe.shards import split_names

SHARDS = [
    (["train-00000-of-00001", "train-00001-of-00002"], {"train"}),
    (["train-00000-of-00001", "validation-00000-of-00001"], {"train", "validation"}),
    (["set_Training_0.tfrecord", "set_valid_0.tfrecord"], {"train", "validation"}),
    (["training2.tfrecord", "testing2.tfrecord"], {"train", "test"}),
    (["part-0.tfrecord", "part-1.tfrecord"], set()),
    (["part-0.tfrecord", "eval-1.tfrecord"], {"validation"}),
    (["train_val.tfrecord", "test.tfrecord"], {"test"}),
    (["train/0.tfrecord", "dev/0.tfrecord"], {"train", "validation"}),
    (["a/train/0.tfrecord", "a/test/0.tfrecord"], {"train", "test"}),
    (["train/0.tfrecord", "car/0.tfrecord"], set()),
    (["train/0.tfrecord", "test/0.tfrecord", "a/0.tfrecord"], {"train", "test"}),
    (["dev/0.tfrecord", "val/0.tfrecord", "a/0.tfrecord"], set()),
    (["test/test-0.tfrecord", "test/test-1.tfrecord"], {"test"}),
    (["val/0.tfrecord", "val/1.tfrecord"], {"validation"}),
    (["retrain-0.tfrecord", "contest-0.tfrecord"], set()),
]


@pytest.mark.parametrize(("names", "splits"), SHARDS)
def test_splits_that_the_names_of_shards_say(names, splits):
    said = split_names.splits_of_shards(names, remedy="")

    assert list(said) == names
    assert {split for split in said.values() if split} == splits


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["val/train-0.tfrecord"], r"got train-0.tfrecord \(train\) and val/ \(valid"),
        (["train/a/test-0", "test/a/test-0"], r"got test-0 \(test\) and train/ \(tra"),
        (["train/dev/0"], r"train/dev/0 must be of one split, got train/ \(train\) a"),
    ],
)
def test_names_of_a_shard_that_contradict_each_other_are_refused(
    tmp_path, names, message
):
    with pytest.raises(ValueError, match=message):
        split_names.splits_of_shards(names, remedy="")

    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_shard(tmp_path / name, [{"n": 0}])
    with pytest.raises(ValueError, match=f"{message}.* inner folder as data_dir, or"):
        tfpipe.TFRecordSource(tmp_path, "train", files="**/*")
    source = tfpipe.TFRecordSource(tmp_path, "all", files="**/*")
    assert source.index.num_records("all") == len(names)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("val/train-0.tfrecord", "val"),
        ("dev/own/train-0.tfrecord", "dev/own"),
        ("dev/train/0.tfrecord", "dev/train"),
        ("dev/train/0.tfrecord", "dev"),
    ],
)
def test_a_folder_that_the_user_names_contradicts_no_name(tmp_path, name, named):
    (tmp_path / name).parent.mkdir(parents=True)
    write_shard(tmp_path / name, [{"n": 0}])

    said = split_names.splits_of_shards([name], named=[named], remedy="")

    assert said == {name: "train"}
    source = tfpipe.TFRecordSource(tmp_path, "train", files=f"{named}/**/*.tfrecord")
    assert source.index.num_records("train") == 1


@pytest.mark.parametrize("split", ["train", "validation", "Test", "all"])
@pytest.mark.parametrize(("names", "splits"), SHARDS)
def test_source_refuses_a_pattern_of_several_splits(tmp_path, names, splits, split):
    for n, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_shard(tmp_path / name, [{"n": n}])

    def source():
        return tfpipe.TFRecordSource(tmp_path, split, files="**/*")

    if len(splits) > 1 and split != "all":
        with pytest.raises(ValueError, match="must be of one split, got") as caught:
            source()
        assert f"{names[0]} (" in str(caught.value)
        assert "split='all'" in str(caught.value)
    else:
        assert source().index.num_records(split) == len(names)


WHOLE = ["train-00000-of-00002", "train-00001-of-00002"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (WHOLE, ""),
        (WHOLE[1:], "numbered 0 to 1 as train-00001-of-00002 says, .*see number 0"),
        (["a-00000-of-00001", *WHOLE[:1]], "got 1, see number 1"),
        ([*WHOLE, "train-00002-of-00002"], "got 3, see number 2"),
        ([f"{WHOLE[0]}-0a", f"{WHOLE[0]}-1b", WHOLE[1]], "got 3, see number 0"),
        ([f"{WHOLE[0]}.tar", f"{WHOLE[1]}.csv"], "got 1, see number 1"),
        ([f"{WHOLE[0]}-0a.tar", f"{WHOLE[1]}-1b.csv"], "got 1, see number 1"),
        ([name + end for name in WHOLE for end in (".tar", ".csv", "-0a.json")], ""),
        (["train-005.tar", "train-006.tar"], ""),
        (
            ["train-007.tar", "train-005.tar"],
            "005.tar and .*007.tar without train-006",
        ),
        (["a-099.tar", "a-101.tar"], "got a-099.tar and a-101.tar without a-100.tar"),
        (["2024.tar", "2026.tar"], ""),
        (["a-01.tar", "a-03.tar"], ""),
        (["a-001.tar", "a-003.csv", "b-003.tar"], ""),
        (["a-001.tar", "a-0003.tar"], ""),
        (["x.tar"], ""),
    ],
)
def test_a_set_of_shards_must_be_whole(names, said):
    if not said:
        split_names.require_whole_sets(names, "--input")
        return
    with pytest.raises(ValueError, match=f"^--input must name whole sets.*{said}"):
        split_names.require_whole_sets(names, "--input")

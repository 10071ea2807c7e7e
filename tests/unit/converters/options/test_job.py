"""converters.options.job: the options that all conversions have."""

import dataclasses

import pytest

from converters.options import job
from tests.support.data.conversions import conversion
from tests.support.processes import commands

# The system test of --help checks that the commands for photographs set another default
# of --exif_orientation before they parse the flags.


def test_defaults_of_the_flags_are_those_of_the_options() -> None:
    with commands.flags_set(output_dir="out"):
        options = job.options_from_flags("folder")

    assert options == job.ConvertOptions(output_dir="out", name="folder")


OTHER_VALUES: dict[str, object] = {
    "output_dir": "s3://bucket/other",
    "work_dir": "work",
    "num_train_shards": 3,
    "num_validation_shards": 2,
    "layout": "tfds",
    "num_workers": 5,
    "engine": "ray",
    "ray_address": "head:6379",
    "seed": 7,
    "overwrite": True,
    "fsync": False,
    "max_bad": 0.5,
    "drop_duplicates": "all",
    "check_inputs": "digest",
    "strict": True,
    "task_index": 1,
    "num_tasks": 4,
    "finalize": True,
    "name": "photos",
    "num_test_shards": 6,
    "near_duplicates": None,
    "label_map": "map.txt",
    "label_base": 0,
    "label_type": "text",
    "split": "test",
    "no_split_names": True,
    "class_depth": 2,
    "classes": ("a b", "c"),
    "expect": "ilsvrc2012",
    "validation_fraction": 0.0,
    "split_fractions": {"train": 0.5, "test": 0.5},
}


def test_each_flag_reaches_its_option() -> None:
    words = {"split_fractions": ["train=0.5", "test=0.5"]}
    with commands.flags_set(**OTHER_VALUES | words):
        options = job.options_from_flags("imagenet")

    found = {name: getattr(options, name) for name in OTHER_VALUES}
    assert found == OTHER_VALUES
    with commands.flags_set(output_dir="out", validation_fraction=0.25):
        assert job.options_from_flags("x").fractions["validation"] == 0.25
    fields = {field.name for field in dataclasses.fields(job.ConvertOptions)}
    assert fields == {*OTHER_VALUES, "policy"}  # test_policy covers the policy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_dir": "ftp://host/x"}, "--output_dir must be a path or a URL with"),
        ({"output_dir": "s3://me:secret@bucket/x"}, "without a password"),
        ({"output_dir": "https://host/x"}, "files of a web server are only read"),
        ({"output_dir": "s3://bucket/x", "num_tasks": 2}, "a folder that all tasks"),
        ({"output_dir": "x", "work_dir": "y"}, "--work_dir is for an --output_dir by"),
    ],
)
def test_output_that_no_job_can_write_is_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        conversion("imagenet", input_dir="raw", **options)  # type: ignore[arg-type]
    assert "secret@" not in str(refused.value)

"""converters.options.job: the options that all conversions have."""

import dataclasses
from collections.abc import Callable

import pytest

from converters import folder, imagenet
from converters.options import job, labelled
from tests.support.processes import commands

OWN = {"input_dir": "raw"}
# The system test of --help checks that the command sets it before it parses the flags.
EXIF_ORIENTATIONS = {folder.FolderOptions: "apply", imagenet.ImagenetOptions: "keep"}


@pytest.mark.parametrize(
    ("kind", "options_from_flags"),
    [
        (folder.FolderOptions, labelled.options_from_flags),
        (imagenet.ImagenetOptions, job.options_from_flags),
    ],
)
def test_defaults_of_the_flags_are_those_of_the_options(
    kind: type[job.JobOptions], options_from_flags: Callable[..., job.JobOptions]
) -> None:
    own_defaults = {"exif_orientation": EXIF_ORIENTATIONS[kind]}
    with commands.flags_set(output_dir="out", **own_defaults):
        options = options_from_flags(kind, **OWN)

    assert options == kind(output_dir="out", **OWN)  # type: ignore[call-arg]


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
}


def test_each_flag_reaches_its_option() -> None:
    with commands.flags_set(**OTHER_VALUES):
        options = job.options_from_flags(imagenet.ImagenetOptions, **OWN)

    found = {name: getattr(options, name) for name in OTHER_VALUES}
    assert found == OTHER_VALUES
    fields = {field.name for field in dataclasses.fields(job.JobOptions)}
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
        imagenet.ImagenetOptions(input_dir="raw", **options)  # type: ignore[arg-type]
    assert "secret@" not in str(refused.value)

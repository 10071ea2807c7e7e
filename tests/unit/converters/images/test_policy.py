"""converters.images.policy: choices and limits."""

import dataclasses
import json
import pickle

import pytest

from converters.images import limits
from converters.images.policy import Policy, policy_of

DEFAULT = Policy()


def test_policy_is_plain_data() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT
    document = json.loads(json.dumps(dataclasses.asdict(DEFAULT)))
    assert Policy(**document) == DEFAULT


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cmyk", "keep", "--cmyk must be one of convert, skip, fail, got keep."),
        (
            "max_pixels",
            0,
            "--max_pixels must be a whole number from 1 to 178956970, got 0",
        ),
        ("quality", 101, "--quality must be a whole number from 1 to 100, got 101"),
        ("max_side", 0, "--max_side must be a whole number from 1 to 65500, got 0"),
        ("short_side", -1, "--short_side must be"),
    ],
)
def test_values_that_are_not_allowed_are_an_error(
    field: str, value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(**{field: value})


def test_policy_of_an_earlier_version_has_no_later_limit() -> None:
    policy = policy_of({"cmyk": "skip", "max_pixels": 100})

    assert (policy.cmyk, policy.max_pixels) == ("skip", 100)
    assert policy.max_decoded_pixels == limits.MAX_PIXELS
    assert policy.max_image_bytes == limits.MOST_IMAGE_BYTES
    made = Policy(max_decoded_pixels=5)
    assert policy_of(vars(made)) == made


def test_the_size_of_the_input_decides_whether_all_is_decoded() -> None:
    for num_images, num_bytes, decode in (
        (0, 0, "full"),
        (2_000, 150_000_000, "full"),
        (2_001, 1, "header"),
        (1, 150_000_001, "header"),
    ):
        assert Policy().for_input(num_images, num_bytes).decode == decode
        for asked in ("header", "full"):
            policy = Policy(decode=asked)
            assert policy.for_input(num_images, num_bytes) == policy

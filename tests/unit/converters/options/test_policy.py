"""converters.options.policy: one flag a policy, and the policy of their values."""

import dataclasses

import pytest
from absl import flags

from converters.images import policy as image_policy
from converters.options import policy as policy_options
from tests.support.processes import commands

# The flags whose default depends on the host.
_FIXED = {"lossless_rotation": False, "corrupt": "ignore"}
FIELDS = [field.name for field in dataclasses.fields(image_policy.Policy)]


def test_defaults_are_those_of_the_policy() -> None:
    with commands.flags_set(**_FIXED):
        assert policy_options.policy_from_flags() == image_policy.Policy()


def test_each_field_is_a_flag_of_this_module_and_has_help() -> None:
    defined = flags.FLAGS.flags_by_module_dict()[policy_options.__name__]

    # converters.replicate has these two as well, and none of the others.
    names = [*(flag.name for flag in defined), "quality", "entry_points"]
    assert sorted(names) == sorted(FIELDS)
    for flag in defined:
        # absl puts the choices of an enum in front.
        assert flag.help.rpartition(">: ")[2][0].isupper()
        assert flag.help.endswith(".")


@pytest.mark.parametrize("name", FIELDS)
def test_each_flag_reaches_its_field(name: str) -> None:
    default = getattr(image_policy.Policy(), name)
    other: object = 77
    if name in image_policy.CHOICES:
        other = image_policy.CHOICES[name][1]
    elif isinstance(default, bool):
        other = not default

    with commands.flags_set(**{**_FIXED, name: other}):
        policy = policy_options.policy_from_flags()

    assert policy == dataclasses.replace(image_policy.Policy(), **{name: other})


@pytest.mark.parametrize("name", image_policy.CHOICES)
def test_the_first_choice_is_the_default(name: str) -> None:
    assert getattr(image_policy.Policy(), name) == image_policy.CHOICES[name][0]


@pytest.mark.parametrize("name", image_policy.CHOICES)
def test_help_explains_each_choice_that_is_not_plain(name: str) -> None:
    text = flags.FLAGS[name].help

    for choice in image_policy.CHOICES[name]:
        assert f"{choice}:" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [("cmyk", "keep"), ("quality", "0"), ("max_pixels", "1000000000")],
)
def test_wrong_values_are_refused_by_the_flag(name: str, value: str) -> None:
    with pytest.raises(flags.IllegalFlagValueError, match=name):
        flags.FLAGS[name].parse(value)

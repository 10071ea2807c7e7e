"""Long rounds of the tests with mutated images."""

import hypothesis
import pytest

from tests.support.faults.torture import RecordProperty, rounds
from tests.unit.converters.checks.test_decodable import check_mutated_images
from tests.unit.converters.images.test_prepare import (
    check_mutated_jpeg,
    check_mutated_other_format,
    jpeg_mutations,
    other_mutations,
)

SETTINGS = hypothesis.settings(
    max_examples=rounds(few=400, many=20_000),
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def test_mutated_jpeg_never_raises(record_property: RecordProperty) -> None:
    SETTINGS(jpeg_mutations(check_mutated_jpeg))()
    record_property("injections", SETTINGS.max_examples)


def test_mutated_other_formats_never_raise(record_property: RecordProperty) -> None:
    SETTINGS(other_mutations(check_mutated_other_format))()
    record_property("injections", SETTINGS.max_examples)


@pytest.mark.parametrize("seed", range(1, 1 + rounds(few=1, many=20)))
def test_mutated_images_that_tensorflow_refuses_are_reported(
    seed: int, record_property: RecordProperty
) -> None:
    check_mutated_images(2000, seed)
    record_property("injections", 2000)

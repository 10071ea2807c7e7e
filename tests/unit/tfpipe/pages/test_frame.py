"""tfpipe.pages.frame: how numbers are written."""

import pytest

from tfpipe.pages import frame


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0.123, "0.12"), (12.34, "12.3"), (1234.5, "1,234"), (0.0, "0.00")],
)
def test_amount_has_the_digits_that_matter(value: float | None, text: str) -> None:
    assert frame.amount(value) == text


def test_interval_has_as_many_decimals_as_its_value() -> None:
    assert frame.with_interval(1234.5, 3.21) == "1,234 ± 3"
    assert frame.with_interval(12.34, 0.5) == "12.3 ± 0.5"
    assert frame.with_interval(1.5, None) == "1.50"
    assert frame.with_interval(761.3, 1054.1) == "761"  # no interval of a rate

"""How many cores of other hosts a service would need."""

import pytest

from tfpipe.service import paying


@pytest.mark.parametrize(
    ("demand", "rate", "cores"),
    [
        (1000.0, 1000.0, 0),  # the host's own cores are enough
        (1001.0, 1000.0, 10),  # 125 a core here, 106 a core elsewhere
        (2800.0, 1000.0, 27),
    ],
)
def test_cores_follow_from_the_rate_of_a_core(
    demand: float, rate: float, cores: int
) -> None:
    assert paying.cores_elsewhere(demand, rate, num_cores=8) == cores


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="rate must be"):
        paying.cores_elsewhere(1.0, 0.0, num_cores=2)

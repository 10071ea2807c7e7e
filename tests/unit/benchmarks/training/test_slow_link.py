"""benchmarks.training.critical_path: the rank behind a slow network is named."""

import pytest

from benchmarks.training import critical_path


@pytest.mark.parametrize(
    ("sending", "communicated", "rank"),
    [
        ([0.1, 8.0], 8.0, 1),
        ([8.0, 0.1, 0.2, 0.3], 8.0, 0),
        ([0.0, 8.0, 0.0], 8.0, 1),
        ([8.0, 7.0], 8.0, None),  # all links are equally slow
        ([4.6, 8.0], 7.6, 1),  # receipts of rank 0 queue behind the bytes of rank 1
        ([8.0, 5.2], 8.0, 0),
        ([0.1, 8.0, 4.6, 0.1], 8.0, 1),
        ([7.0, 6.5, 8.0, 6.0], 8.0, None),
        ([0.1, 8.0], 0.5, None),  # the computation hides the network
        ([0.1, 0.5], 8.0, None),  # something else takes the time
        ([0.1, None], 8.0, None),
        ([8.0], 8.0, None),
        ([], 8.0, None),
    ],
)
def test_the_rank_with_waiting_bytes(
    sending: list[float | None], communicated: float, rank: int | None
) -> None:
    found = critical_path.slow_link(sending, communicated, total=20.0)

    assert (found and found.rank) == rank
    if found:
        assert found.seconds == 8.0
        assert found.text.startswith(f"Rank {rank} is behind a slow network: its bytes")

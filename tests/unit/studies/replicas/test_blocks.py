"""studies.replicas.blocks: blocks that other files hold too."""

import numpy as np
import pytest

from studies.replicas import blocks

BLOCK = blocks.BLOCK


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes groups of contents to files."""

    def to_files(groups):
        paths = []
        for group, contents in enumerate(groups):
            paths.append([])
            for number, content in enumerate(contents):
                path = tmp_path / f"{group}_{number}"
                path.write_bytes(content)
                paths[-1].append(path)
        return paths

    return to_files


def _noise(seed, num_blocks):
    return np.random.default_rng(seed).bytes(num_blocks * BLOCK)


A, B, C = (_noise(seed, 10) for seed in range(3))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[A], [B], [C]], 0),
        ([[A], [A]], 1),
        ([[A + b"x"], [A]], 1),
        # Moved by bytes: the blocks of the first are found, not those of the second.
        ([[A], [b"xyz" + A]], 19 / 20),
        # One byte of another value in one block.
        ([[A], [A[:5000] + b"?" + A[5001:]]], 18 / 20),
        # Twice within a group is not shared.
        ([[A, A], [B]], 0),
        ([[A, B], [C, A]], 1 / 2),
        # Across the pieces that are hashed at once.
        ([[_noise(7, 70)], [b"x" + _noise(7, 70)]], 139 / 140),
        ([[A[: BLOCK - 1]], [A[: BLOCK - 1]]], 0),
        ([[bytes(3 * BLOCK)], [bytes(3 * BLOCK)]], 1),
    ],
)
def test_share_of_blocks_in_another_group(write, groups, expected):
    assert blocks.shared_share(write(groups)) == pytest.approx(expected)

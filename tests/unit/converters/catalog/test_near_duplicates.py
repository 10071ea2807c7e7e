"""Pairs of hashes: the same that a comparison of all of them finds."""

import itertools

import pytest
from hypothesis import given, settings, strategies

from converters.catalog import near_duplicates
from converters.catalog.near_duplicates import Hashed

# Few bits, at both ends of the hash, so that many are near each other.
_HASHES = strategies.lists(
    strategies.tuples(
        strategies.integers(0, 31), strategies.sampled_from([0, 1 << 63, 0xFF << 56])
    ).map(lambda parts: parts[0] | parts[1]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(_HASHES, strategies.integers(0, near_duplicates.MAX_DISTANCE))
def test_all_pairs_within_the_distance_are_found(
    hashes: list[int], distance: int
) -> None:
    images = [
        Hashed(hash, f"digest{n}", f"{n:02d}.jpg", "train", "cat")
        for n, hash in enumerate(hashes)
    ]

    found = near_duplicates.find(images, distance)

    expected = {
        (one.name, other.name)
        for one, other in itertools.combinations(images, 2)
        if ((one.hash or 0) ^ (other.hash or 0)).bit_count() <= distance
    }
    named = {
        pair for line in found for pair in itertools.combinations(line["names"], 2)
    }
    assert expected <= named
    assert [line["distance"] for line in found] == sorted(
        line["distance"] for line in found
    )
    assert all(line["distance"] <= distance for line in found)
    assert bool(found) == bool(expected)


def test_equal_bytes_count_once_and_what_is_not_decoded_is_left_out() -> None:
    images = [
        Hashed(5, "a", "own/1.jpg", "train", "cat"),
        Hashed(5, "a", "web/1.jpg", "train", "cat"),
        Hashed(7, "b", "web/2.jpg", "validation", "dog"),
        Hashed(7, "c", "web/3.jpg", "train", "cat"),
        Hashed(None, "d", "web/4.jpg", "train", "cat"),
    ]

    assert near_duplicates.find(images, 0) == [
        {
            "distance": 0,
            "names": ["web/2.jpg", "web/3.jpg"],
            "splits": ["train", "validation"],
            "synsets": ["cat", "dog"],
        }
    ]
    assert [line["names"] for line in near_duplicates.find(images, 1)] == [
        ["web/2.jpg", "web/3.jpg"],
        ["own/1.jpg", "web/2.jpg", "web/3.jpg"],
    ]
    with pytest.raises(ValueError, match="must be 0 to 8 bits, got 9"):
        near_duplicates.find(images, 9)

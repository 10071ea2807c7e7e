"""benchmarks.planning.plan: ranks on hosts, as horovodrun takes them."""

import pytest

from benchmarks.planning.plan import Placement

FOUR = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("text", "num_ranks", "hosts", "expected"),
    [
        ("1x8", 8, FOUR, ("a:8",)),
        ("2x4", 8, FOUR, ("a:4", "b:4")),
        ("4x2", 8, FOUR, ("a:2", "b:2", "c:2", "d:2")),
        ("1x8", 8, (), ()),  # this host
        ("1x1", 1, ("a",), ("a:1",)),
        ("2x4", 8, ("a:8", "b:4"), ("a:4", "b:4")),
    ],
)
def test_placements(
    text: str, num_ranks: int, hosts: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    place = Placement.parse(text)

    assert place.num_ranks == num_ranks
    assert str(place) == text
    assert place.on(hosts) == expected


def test_ranks_without_placement_fill_the_slots() -> None:
    assert Placement(6).on(("a:4", "b:4")) == ("a:4", "b:4")
    assert Placement(6).on(()) == ()
    assert str(Placement(6)) == "6"


@pytest.mark.parametrize("text", ["", "8", "0x4", "2x", "2x4x2", "x4", "2 x 4", "-1x4"])
def test_text_that_is_no_placement(text: str) -> None:
    with pytest.raises(ValueError, match="--placements must be hosts x ranks"):
        Placement.parse(text)


@pytest.mark.parametrize(
    ("place", "hosts", "message"),
    [
        (Placement(8, 2), (), "--placements=2x4 must have 2 --hosts, got 0"),
        (Placement(8, 2), ("a",), "--placements=2x4 must have 2 --hosts, got 1"),
        (Placement(8, 2), ("a:8", "b:3"), "must have 4 slots on each host, got 3 on b"),
        (Placement(9), ("a:4", "b:4"), "9 ranks must fit into the slots .* got 8"),
        (Placement(2), ("a", "b:4"), "each of --hosts must have its slots"),
        (Placement(2), ("a:x",), "--hosts must be name or name:slots, got 'a:x'"),
        (Placement(2, 1), (":2",), "--hosts must be name or name:slots, got ':2'"),
        (Placement(2), ("a:0",), "--hosts must be name or name:slots, got 'a:0'"),
    ],
)
def test_ranks_that_do_not_fit(
    place: Placement, hosts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        place.on(hosts)

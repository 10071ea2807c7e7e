"""The directory: one budget, the right victims, and nothing counted wrong."""

import dataclasses
import errno
import os
import re
import shutil

import numpy as np
import pytest

from tests.support.data.shards import make_shards
from tfpipe import host
from tfpipe.location import atomic
from tfpipe.location.location import Location
from tfpipe.shard_cache import disk, pieces as cuts, victims
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.store import ABSENT, FETCHING, PRESENT, SplitContent

# Records of a piece have about this many bytes: pieces share blocks of the disk.
PIECE_BYTES = 6000


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(cuts, "_MOST_BYTES", PIECE_BYTES)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("data"), [20, 0, 13], record_bytes=1400)


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """Shards whose pieces have one block of the disk each."""
    folder = tmp_path_factory.mktemp("even")
    return make_shards(folder, [40], record_bytes=1008, is_even=True)


def content_of(made, place="somewhere"):
    num_bytes = np.array([shard.num_bytes for shard in made.shards])
    pieces = cuts.cut(made.sizes, made.byte_offsets, num_bytes)
    return SplitContent(
        location=Location(place), split=made.split, shards=made.shards, pieces=pieces
    )


def fetch(directory, store, made, pieces, *, ahead=False):
    """Reserves pieces, writes those that are granted, and returns the grant."""
    granted = directory.reserve(store, pieces, ahead=ahead)
    for piece in granted.pieces:
        path = made.folder / store.shards[store.shard[piece]].name
        start, stop = int(store.start[piece]), int(store.stop[piece])
        store.write(piece, memoryview(path.read_bytes())[start:stop])
        store.marks[piece] = PRESENT
        store.unclaim(piece)
    return granted


def blocks(path):
    return sum(file.stat().st_blocks * 512 for file in path.rglob("shards/*"))


def needs(user):
    """A reader of a user, and the function that sets its next uses.

    The function takes the current window, the last window that is pinned, and the next
    uses by piece. All other pieces keep theirs.
    """
    reader = user.take_row()[1]

    def set_uses(now, pinned_until, uses):
        for piece, window in uses.items():
            reader.plan.use[piece] = window
        reader.hand_out(now, pinned_until, 1)

    return set_uses


def check_bytes(made, store):
    for piece in np.flatnonzero(store.marks == PRESENT).tolist():
        path = made.folder / store.shards[store.shard[piece]].name
        start, stop = int(store.start[piece]), int(store.stop[piece])
        assert store.read(piece) == path.read_bytes()[start:stop]


@pytest.mark.parametrize("most_looked_at", [victims._SMALL, 1])
def test_any_order_of_uses_keeps_the_budget_and_all_bytes(
    tmp_path, made, most_looked_at, monkeypatch
):
    """Pieces share blocks here, so that freeing one could harm its neighbours."""
    monkeypatch.setattr(victims, "_SMALL", most_looked_at)
    monkeypatch.setattr(victims, "_SAMPLE", 1)
    content = content_of(made)
    directory = Directory(tmp_path, 30_000)
    store, user = directory.open(content)
    set_uses = needs(user)
    random = np.random.default_rng(0)

    for now in range(1, 150):
        wanted = random.choice(len(content.pieces), 2, replace=False)
        later = now + random.integers(1, 100, len(store.marks))
        later[wanted] = now
        set_uses(now, now, dict(enumerate(later)))
        granted = fetch(directory, store, made, wanted.tolist())
        assert not granted.no_room
        assert (store.marks[wanted] == PRESENT).all()
        assert store.num_bytes() <= 30_000
        assert blocks(tmp_path) <= 30_000
        check_bytes(made, store)
    assert blocks(tmp_path) > 15_000
    fetch(directory, store, made, [])
    for piece in np.flatnonzero(store.marks == PRESENT).tolist():
        store.drop(piece)
    assert blocks(tmp_path) == 0


def room_for(store, count):
    """Bytes that are room for the first pieces of a store."""
    return int(store.costs[:count].sum())


def test_the_piece_used_last_goes_and_one_that_is_needed_stays(tmp_path, even):
    directory = Directory(tmp_path, 1 << 30)
    store, user = directory.open(content_of(even))
    set_uses = needs(user)
    set_uses(1, 1, {0: 1, 1: 50, 2: 90, 3: 10, 4: 20})
    directory.max_bytes = room_for(store, 3)
    fetch(directory, store, even, [0, 1, 2])

    # 3 is used before 2, so it may be fetched ahead; then 1 would have to go for 4.
    assert fetch(directory, store, even, [3], ahead=True).pieces == [3]
    assert store.marks[:5].tolist() == [PRESENT, PRESENT, ABSENT, PRESENT, ABSENT]
    set_uses(1, 1, {4: 60})
    assert fetch(directory, store, even, [4], ahead=True).no_room == [4]
    # It is needed now: the farthest goes, the pinned piece 0 stays.
    assert fetch(directory, store, even, [4]).pieces == [4]
    assert store.marks[:5].tolist() == [PRESENT, ABSENT, ABSENT, PRESENT, PRESENT]
    set_uses(100, 100, dict.fromkeys(range(5), 100))
    assert fetch(directory, store, even, [1, 2]).no_room == [1, 2]


def test_less_room_than_is_needed_now_evicts_nothing_of_it(tmp_path, even):
    directory = Directory(tmp_path, 1 << 30)
    store, user = directory.open(content_of(even))
    needs(user)(1, 1, {0: 1, 1: 50, 2: 1})
    fetch(directory, store, even, [0, 1, 2])

    for _ in range(2):  # nothing may go the second time
        Directory(tmp_path, 1).open(content_of(even))

    assert store.marks[:3].tolist() == [PRESENT, ABSENT, PRESENT]


def test_data_that_nobody_reads_goes_first_the_oldest_at_first(
    tmp_path, made, tmp_path_factory, capsys
):
    others = [
        make_shards(tmp_path_factory.mktemp("other"), [9], record_bytes=1400, seed=seed)
        for seed in (1, 2)
    ]
    directory = Directory(tmp_path, 1 << 30)
    opened = []
    for age, other in enumerate(others):
        store, user = directory.open(content_of(other, f"other-{age}"))
        fetch(directory, store, other, range(len(store.marks)))
        user.close()
        os.utime(store.folder / "manifest.json", (1000 + age, 1000 + age))
        opened.append(store)
    used = sum(store.num_bytes() for store in opened)
    store, user = directory.open(content_of(made))
    set_uses = needs(user)
    fetch(directory, store, made, [0])
    directory.max_bytes = used + room_for(store, 1)

    fetch(directory, store, made, [1])

    assert (opened[0].marks == ABSENT).any()
    assert (opened[1].marks == PRESENT).all()
    assert store.marks[0] == PRESENT
    said = capsys.readouterr().err
    assert said.count("other-0") == 1
    assert "other-1" not in said
    check_bytes(others[0], opened[0])
    set_uses(1, 1, {0: 1, 1: 1})
    fetch(directory, store, made, range(2, len(store.marks)))
    assert all((other.marks == ABSENT).all() for other in opened)
    # Nothing of them is left for the next process.
    Directory(tmp_path, 1 << 30)
    assert not any(other.folder.exists() for other in opened)
    assert store.folder.exists()


def test_a_killed_process_leaves_its_pieces_to_others(tmp_path, made):
    killed = Directory(tmp_path, 1 << 30)
    store_of_killed, _ = killed.open(content_of(made))
    directory = Directory(tmp_path, 1 << 30)
    store, _ = directory.open(content_of(made))
    killed.reserve(store_of_killed, [0, 1], ahead=False)

    assert directory.reserve(store, [0], ahead=False).pieces == []
    killed.close()  # as the kernel does

    assert directory.reserve(store, [0], ahead=False).pieces == [0]
    assert directory.reserve(store, [0], ahead=False).pieces == []
    directory.max_bytes = room_for(store, 2)
    # The other one counts as absent as soon as room is needed.
    assert directory.reserve(store, [3], ahead=False).pieces == [3]
    assert store.marks[:4].tolist() == [FETCHING, ABSENT, ABSENT, FETCHING]


def test_a_piece_that_arrives_between_a_look_and_a_claim_is_not_fetched_again(
    tmp_path, made
):
    other = Directory(tmp_path, 1 << 30)
    store_of_other, _ = other.open(content_of(made))
    directory = Directory(tmp_path, 1 << 30)
    store, _ = directory.open(content_of(made))
    other.reserve(store_of_other, [0, 1], ahead=False)
    claim = store.claim

    def claim_late(piece):
        """Lets the other process end its work first."""
        if store_of_other.marks[piece] == FETCHING:
            store_of_other.marks[piece] = PRESENT
            store_of_other.unclaim(piece)
        return claim(piece)

    store.claim = claim_late

    assert directory.reserve(store, [0], ahead=False).pieces == []
    assert store.marks[0] == PRESENT
    directory.max_bytes = room_for(store, 2)
    directory.reserve(store, [3], ahead=True)  # looks for pieces of killed processes
    assert store.marks[1] == PRESENT
    assert store_of_other.claim(0)  # nobody holds it
    assert store_of_other.claim(1)


def test_a_full_disk_keeps_the_cache_from_growing_for_a_while(tmp_path, even):
    now = 0.0
    directory = Directory(tmp_path, 1 << 30, clock=lambda: now)
    store, user = directory.open(content_of(even))
    set_uses = needs(user)
    set_uses(1, 1, {0: 5})
    fetch(directory, store, even, [0])
    set_uses(2, 2, {0: 50, 1: 2, 2: 2})
    directory.note_unwritable(OSError(errno.ENOSPC, "full"))

    assert fetch(directory, store, even, [1, 2]).no_room == [2]
    assert store.marks[:3].tolist() == [ABSENT, PRESENT, ABSENT]
    now = 11.0
    assert fetch(directory, store, even, [2]).pieces == [2]


def test_a_shard_has_its_own_pieces_and_not_those_of_the_next(tmp_path):
    made = make_shards(tmp_path / "data", [9, 13, 0, 20, 1], record_bytes=1400)
    store, _ = Directory(tmp_path / "cache", 1 << 30).open(content_of(made))

    of_shards = [range(len(store.marks))[store.pieces_of(n)] for n in range(5)]

    assert [len(pieces) > 0 for pieces in of_shards] == [True, True, False, True, True]
    for number, pieces in enumerate(of_shards):
        assert list(pieces) == np.flatnonzero(store.shard == number).tolist()


def test_folders_above_the_directory_are_made(tmp_path, made):
    directory = Directory(tmp_path / "a/b", 1 << 30)
    store, _ = directory.open(content_of(made))

    assert fetch(directory, store, made, [0]).pieces == [0]
    assert Directory(tmp_path / "a/b", 1 << 30).path.is_dir()


def test_a_smaller_budget_holds_from_the_start(tmp_path, made):
    directory = Directory(tmp_path, 1 << 30)
    store, _ = directory.open(content_of(made))
    fetch(directory, store, made, range(len(store.marks)))

    smaller = Directory(tmp_path, 20_000)
    store, _ = smaller.open(content_of(made))

    assert 0 < store.num_bytes() <= 20_000


def test_a_reboot_leaves_published_shards_only(tmp_path, made, monkeypatch):
    directory = Directory(tmp_path, 1 << 30)
    store, user = directory.open(content_of(made))
    fetch(directory, store, made, range(len(store.marks)))
    store.published(2).touch()
    user.close()
    monkeypatch.setattr(host, "boot_id", lambda: "the next one")

    store, _ = Directory(tmp_path, 1 << 30).open(content_of(made))

    is_published = store.shard == 2
    assert (store.marks[is_published] == PRESENT).all()
    assert (store.marks[~is_published] == ABSENT).all()
    assert store.path(0).stat().st_blocks == 0
    check_bytes(made, store)
    monkeypatch.setattr(host, "boot_id", lambda: "another host")
    with pytest.raises(ValueError, match="another host uses"):
        Directory(tmp_path, 1 << 30).open(content_of(made))


def test_a_file_that_was_changed_and_a_folder_that_is_not_whole_are_filled_anew(
    tmp_path, made, capsys
):
    directory = Directory(tmp_path, 1 << 30)
    store, user = directory.open(content_of(made))
    fetch(directory, store, made, range(len(store.marks)))
    os.truncate(store.path(0), 5)
    store.path(2).unlink()
    user.close()

    store, user = Directory(tmp_path, 1 << 30).open(content_of(made))

    assert (store.marks == ABSENT).all()
    assert store.path(0).stat().st_size == made.shards[0].num_bytes
    user.close()
    (store.folder / "layout.npy").write_bytes(b"")
    store, _ = Directory(tmp_path, 1 << 30).open(content_of(made))
    assert "is not whole: it is filled again" in capsys.readouterr().err
    assert len(store.marks) == len(content_of(made).pieces)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_text("x"), "Give a folder, not a file"),
        (
            lambda path: (path.mkdir(), (path / "version").write_text("1")),
            "must hold a 'tfpipe shard cache 2', got '1'",
        ),
    ],
)
def test_a_directory_that_cannot_be_a_cache_is_refused(tmp_path, spoil, said):
    spoil(tmp_path / "cache")

    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        Directory(tmp_path / "cache", None)
    assert str(tmp_path / "cache") in str(caught.value)


def test_a_file_system_without_locks_or_holes_is_refused(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(95, "Operation not supported")

    for name in ("punch", "lock_byte"):
        with monkeypatch.context() as patch:
            patch.setattr(disk, name, fail)
            with pytest.raises(ValueError, match="Give a folder on a local disk"):
                Directory(tmp_path / name, None)


@pytest.mark.parametrize(
    ("before", "now", "place", "is_published", "is_used", "dropped"),
    [
        # Tags of both shards with records, at two openings.
        (("a", "b"), ("a", "b"), "somewhere", False, False, []),
        (("a", "b"), ("a", "c"), "somewhere", False, False, [1]),
        (("a", "b"), ("c", "d"), "somewhere", False, False, [0, 1]),
        (("a", "b"), ("c", "d"), "somewhere", True, False, []),  # has its digest
        (("a", "b"), ("c", "d"), "somewhere", False, True, []),  # no other's pieces
        (("a", "b"), ("c", "d"), "elsewhere", False, False, []),  # a copy
        (("a", ""), ("c", "d"), "somewhere", False, False, [0]),
        (("a", "b"), ("", "d"), "somewhere", False, False, [1]),
        (("", ""), ("c", "d"), "somewhere", False, False, []),
        (("a", "b"), ("", ""), "somewhere", False, False, []),
    ],
)
def test_pieces_of_shards_that_were_replaced_between_two_runs_are_dropped(
    made, tmp_path, before, now, place, is_published, is_used, dropped
):
    directory = Directory(tmp_path, 10**6)
    content = content_of(made)
    tagged = dataclasses.replace(content, tags=(before[0], "", before[1]))
    store, user = directory.open(tagged)
    fetch(directory, store, made, range(len(store.marks)))
    if is_published:
        for shard in (0, 2):
            store.published(shard).touch()
    if not is_used:
        user.close()

    later = content_of(made, place)
    later = dataclasses.replace(later, tags=(now[0], "", now[1]))
    again, _ = Directory(tmp_path, 10**6).open(later)

    lost = {(0, 2)[number] for number in dropped}
    assert set(again.shard[again.marks == ABSENT].tolist()) == lost
    assert again.num_bytes() == again.costs[again.marks == PRESENT].sum()


@pytest.mark.parametrize(
    ("before", "now", "split", "is_told"),
    [
        # Shards at two openings of a place; the digests are those of their numbers.
        ([0, 1], [0, 1], "train", False),
        ([0, 1], [0, 1, 2], "train", False),  # a later generation
        ([0, 1, 2], [0, 1], "train", False),  # an earlier generation
        ([0, 1], [2, 3], "train", True),
        ([0, 1], [0, 2], "train", True),
        ([0, 1], [2, 3], "validation", False),
    ],
)
def test_a_data_set_with_other_shards_is_named_as_replaced_once(
    tmp_path, capsys, before, now, split, is_told
):
    made = make_shards(tmp_path / "data", [20, 20, 20, 20], is_even=True)

    def part(shards, split):
        chosen = dataclasses.replace(
            made,
            shards=tuple(made.shards[shard] for shard in shards),
            byte_offsets=made.byte_offsets[: 20 * len(shards)],
        )
        return dataclasses.replace(content_of(chosen), split=split)

    cache = tmp_path / "cache"
    first = Directory(cache, 10**6)
    store, user = first.open(part(before, "train"))
    fetch(first, store, made, range(2))
    os.utime(store.folder / "manifest.json", (1, 1))
    user.close()
    for _ in range(2):
        Directory(cache, 10**6).open(part(now, split))

    said = capsys.readouterr().err
    assert said.count("somewhere was replaced since") == is_told
    assert (str(store.folder) in said) == is_told


@pytest.mark.parametrize("text", ["", "{}", "[]", '"text"', "[1, 2]", "null"])
def test_a_damaged_file_of_tags_is_written_again(made, tmp_path, text):
    directory = Directory(tmp_path, 10**6)
    content = dataclasses.replace(content_of(made), tags=("a", "b", "c"))
    store, user = directory.open(content)
    path = store.folder / "tags.json"
    right = path.read_text()
    user.close()
    path.write_text(text)

    Directory(tmp_path, 10**6).open(content)

    assert path.read_text() == right


def test_a_directory_that_others_remove_while_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    directory, locked = Directory(tmp_path / "cache", 10**6), atomic.locked
    harms = [errno.ENOENT, errno.ENOTEMPTY]

    def harmed(path):
        if harms:
            shutil.rmtree(path.parent)
            raise OSError(harms.pop(), "removed")
        return locked(path)

    monkeypatch.setattr(atomic, "locked", harmed)
    with directory.locked():
        assert (tmp_path / "cache/lock").exists()

    for harms[:] in ([errno.EIO], [errno.ENOENT] * 99):
        with pytest.raises(OSError, match="removed"), directory.locked():
            pass
    assert len(harms) == 99 - 20

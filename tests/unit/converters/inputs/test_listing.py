"""converters.inputs.listing: a folder of a store is listed as one on a disk."""

import pathlib

import pytest
from hypothesis import given, strategies as st

from converters.inputs import listing
from tfpipe.location.browse import Folder
from tfpipe.location.files import Files
from tfpipe.location.location import Location

WORDS = st.sampled_from(["a", "b.jpg", "c.JPEG", ".d", "._e.jpg", "f.txt", "g.tar"])
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)


def _at_url(sizes: dict[str, int]) -> Folder:
    folder = Folder(Location("s3://bucket/raw"))
    vars(folder)["_names"] = dict(sorted(sizes.items()))
    return folder


@given(paths=st.sets(PATHS, min_size=1, max_size=8))
def test_both_kinds_of_folders_list_the_same(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    sizes = {}
    for name in sorted(paths):
        if any((root / above).is_file() for above in pathlib.PurePath(name).parents):
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).is_dir():
            (root / name).write_bytes(b"x" * len(name))
            sizes[name] = len(name)
    disk, store = Folder(Location(str(root))), _at_url(sizes)

    for path in ["", "a", *sizes, *(str(p.relative_to(root)) for p in root.rglob("*"))]:
        assert store.is_folder(path) == disk.is_folder(path)
        assert store.exists(path) == disk.exists(path)
        if disk.is_folder(path):
            found, expected = (listing.scan(each, path) for each in (store, disk))
            assert found == expected
            assert [*store.files_below(path)] == [*disk.files_below(path)]


def test_a_file_and_a_folder_may_have_one_name() -> None:
    folder = _at_url({"a": 1, "a/b.jpg": 2, "x//y.jpg": 3, "../up.jpg": 4})

    assert listing.scan(folder, "").folders == ["a", "x"]
    (image,) = listing.scan(folder, "a").images
    assert (image.name, image.file, image.num_bytes) == ("a/b.jpg", "a/b.jpg", 2)
    left = listing.scan(folder, "").left_out
    assert [item.name for item in left] == ["..", "a"]


def test_a_list_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Files, "read", lambda self, name: name.encode())
    folder = _at_url({"a.txt": 10, "b.txt": 11})

    assert folder.read("a.txt", max_bytes=10) == b"a.txt"
    with pytest.raises(ValueError, match=r"raw/b.txt must have at most 10 bytes"):
        folder.read("b.txt", max_bytes=10)

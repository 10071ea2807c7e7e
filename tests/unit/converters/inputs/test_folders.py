"""converters.inputs.folders: a folder of a store is listed as one on a disk."""

import pathlib
import threading

import pytest
from hypothesis import given, strategies as st

from converters.inputs import listing, reading
from converters.inputs.folders import Folder
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
            found, expected = (
                each.scan(path, listing.IMAGE_SUFFIXES) for each in (store, disk)
            )
            assert found == expected
            assert [*store.files_below(path)] == [*disk.files_below(path)]


def test_a_file_and_a_folder_may_have_one_name() -> None:
    folder = _at_url({"a": 1, "a/b.jpg": 2, "x//y.jpg": 3, "../up.jpg": 4})

    assert folder.scan("", listing.IMAGE_SUFFIXES).folders == ["a", "x"]
    (image,) = folder.scan("a", listing.IMAGE_SUFFIXES).images
    assert (image.name, image.file, image.num_bytes) == ("a/b.jpg", "a/b.jpg", 2)
    left = folder.scan("", listing.IMAGE_SUFFIXES).left_out
    assert [item.name for item in left] == ["..", "a"]


@pytest.mark.parametrize(
    ("url", "server", "name"),
    [
        ("s3://b/c/d%20e.jpg", "s3://b", "c/d%20e.jpg"),
        ("s3://b/a#?.jpg", "s3://b", "a#?.jpg"),
        ("https://h:80/c/d%20e.jpg", "https://h:80", "c/d e.jpg"),
    ],
)
def test_a_file_by_url_is_read_at_its_server(
    url: str, server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def read_range(files: Files, name: str, start: int, stop: int) -> bytes:
        asked.append((files.location.text, name, start, stop))
        return b""

    monkeypatch.setattr(Files, "read_range", read_range)

    reading.read(Location("/data"), url, 2, 3)

    assert asked == [(server, name, 2, 5)]


def test_a_list_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Files, "read", lambda self, name: name.encode())
    folder = _at_url({"a.txt": 10, "b.txt": 11})

    assert folder.read("a.txt", max_bytes=10) == b"a.txt"
    with pytest.raises(ValueError, match=r"raw/b.txt must have at most 10 bytes"):
        folder.read("b.txt", max_bytes=10)


@pytest.mark.parametrize("slow_seconds", [-1.0, 60.0])
def test_quick_jobs_run_here_and_slow_jobs_in_threads_in_one_order(
    slow_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_SLOW_SECONDS", slow_seconds)
    here = threading.get_ident()

    def job(number: int) -> tuple[int, bool]:
        return number, threading.get_ident() == here

    for count in (0, 1, 2, 40):
        results = [*reading.in_threads(job, range(count))]
        assert [number for number, _ in results] == [*range(count)]
        # The first job says how long a job takes.
        assert all(is_here == (slow_seconds > 0) for _, is_here in results[1:])

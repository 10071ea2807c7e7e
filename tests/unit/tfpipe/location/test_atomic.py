import contextlib
import errno
import fcntl
import os
import resource

import pytest

from tests.support.data import chosen_paths
from tfpipe.location import atomic


@contextlib.contextmanager
def open_folder(path):
    folder = os.open(path, os.O_RDONLY)
    try:
        yield folder
    finally:
        os.close(folder)


def test_replaced_file_has_the_new_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")

    atomic.write(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_failure_while_replacing_leaves_the_old_content(tmp_path):
    """As on a full disk: the operating system stops the write after 4 kB."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            atomic.write(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_and_no_hidden_one(tmp_path):
    (tmp_path / "file").touch()
    for folder, kind in (("missing", FileNotFoundError), ("file", NotADirectoryError)):
        path = tmp_path / folder / "file"

        with pytest.raises(kind) as caught:
            atomic.write(path, b"new")

        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
        assert str(caught.value).endswith(f": '{path}'")


def test_a_path_that_a_user_chose_stays_what_it_is(tmp_path, capfd):
    chosen_paths.assert_stay(
        lambda path, text: atomic.write_chosen(path, text.encode()), tmp_path, capfd
    )


@pytest.mark.parametrize("has_old", [True, False])
def test_error_in_the_block_leaves_the_folder_as_it_was(tmp_path, has_old):
    path = tmp_path / "file"
    if has_old:
        path.write_bytes(b"old")
    before = [(p.name, p.read_bytes()) for p in tmp_path.iterdir()]

    def write_half():
        with atomic.new_file(path) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()

    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == before


def test_the_next_writer_removes_what_a_killed_writer_left(tmp_path):
    path, name = tmp_path / "a[1].bin", ".a[1].bin.{}.partial"
    leftover = tmp_path / name.format("0f" * 16)
    others = [tmp_path / name.format("mine"), tmp_path / f".b.{'0f' * 16}.partial"]
    for each in (leftover, *others):
        each.write_bytes(b"half")

    with atomic.new_file(path, sweeps=True) as part:
        part.write_bytes(b"whole")

    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_the_hidden_file_of_a_writer_at_work_stays(tmp_path):
    path = tmp_path / "file"

    with atomic.new_file(path, sweeps=True) as first:
        first.write_bytes(b"first")
        with atomic.new_file(path, sweeps=True) as second:
            second.write_bytes(b"second")
        assert first.exists()

    assert path.read_bytes() == b"first"


def test_a_writer_that_does_not_sweep_takes_no_lock_of_the_folder(tmp_path):
    leftover = tmp_path / f".file.{'0f' * 16}.partial"
    leftover.write_bytes(b"of another host")

    with open_folder(tmp_path) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with atomic.new_file(tmp_path / "file") as part:
            part.write_bytes(b"whole")

    assert sorted(tmp_path.iterdir()) == [leftover, tmp_path / "file"]


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "file"

    with atomic.new_file(path) as first, atomic.new_file(path) as second:
        first.write_bytes(b"first")
        second.write_bytes(b"second")

    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_the_rename_and_the_name_after_it(
    tmp_path, monkeypatch
):
    path, calls = tmp_path / "file", []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        calls.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(old, new):
        calls.append("rename")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)

    atomic.write(path, b"new")

    assert calls == [".file.tmp", "rename", tmp_path.name]


def test_a_file_that_exists_is_not_created_again(tmp_path):
    path = tmp_path / "file"

    assert [atomic.create(path, content) for content in (b"one", b"two")] == [
        True,
        False,
    ]

    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        atomic.create(tmp_path / "none" / "file", b"")


def test_a_lock_of_a_file_is_held_by_one_and_keeps_the_content(tmp_path):
    path = tmp_path / "lock"
    for content in (b"", b"kept"):
        path.write_bytes(content)
        with (
            atomic.locked(path),
            open(path, "ab") as other,
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(path, "ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert path.read_bytes() == content


def test_a_sweep_of_a_missing_folder_names_the_file(tmp_path):
    path = tmp_path / "none" / "file"
    with (
        pytest.raises(FileNotFoundError, match="none"),
        atomic.new_file(path, sweeps=True) as part,
    ):
        part.write_bytes(b"")


def test_part_that_is_a_link_to_the_file_is_removed(tmp_path):
    path, part = tmp_path / "file", tmp_path / "part"
    path.write_bytes(b"content")

    with atomic.new_file(path, part=part):
        os.link(path, part)

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(errno.EIO, "Input/output error"), "the file"),
        (OSError(errno.EIO, "Input/output error", "another"), "another"),
        (OSError("a message of its own"), None),
    ],
)
def test_an_error_names_its_file(error: OSError, name: str | None) -> None:
    with (
        pytest.raises(OSError, match=r"error|own") as raised,
        atomic.naming("the file"),
    ):
        raise error

    assert raised.value.filename == name

"""converters.options.shared: paths of a user."""

import os
import pathlib
import tempfile

import pytest

from converters.options import shared
from tfpipe.location.location import Location


def test_path_of_knows_home_folders(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert shared.path_of("--x", "~/raw") == tmp_path / "raw"
    assert shared.path_of("--x", "a/~b") == pathlib.Path("a/~b")
    with pytest.raises(ValueError, match=r"--x must be a path, got nothing"):
        shared.path_of("--x", "")
    with pytest.raises(
        ValueError, match=r"--x must be a path on this machine, got s3:"
    ):
        shared.path_of("--x", "s3://bucket/x")
    with pytest.raises(ValueError, match=r"--x must be a path, got ~nosuchuser/x"):
        shared.path_of("--x", "~nosuchuser/x")


def test_files_for_a_url_are_made_in_a_folder_of_this_user(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, two = (shared.work_folder(Location(f"s3://bucket/{n}"), None) for n in "12")

    shared.make_temporary_folder()
    shared.make_temporary_folder()

    (mine,) = tmp_path.iterdir()
    assert one.parent == two.parent == mine
    assert one != two
    assert mine.stat().st_mode & 0o777 == 0o700
    given = shared.work_folder(Location("s3://bucket/1"), str(tmp_path / "work"))
    assert given == tmp_path / "work" / one.name


def test_a_folder_of_another_user_is_not_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may make a folder or a link below /tmp."""
    me, another = os.getuid(), os.getuid() + 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"tfpipe-{me}").symlink_to(tmp_path)
    (tmp_path / f"tfpipe-{another}").mkdir()

    for uid in (me, another):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        with pytest.raises(ValueError, match="must be a folder of this user"):
            shared.make_temporary_folder()

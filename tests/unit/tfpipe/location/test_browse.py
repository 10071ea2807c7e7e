"""tfpipe.location.browse lists files, folders and links of every kind in a folder."""

import pathlib

from tfpipe.location.browse import Folder, FolderEntry
from tfpipe.location.location import Location


def test_links_are_followed_if_asked_and_a_round_ends(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"abc")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "round").symlink_to(tmp_path)
    folder = Folder(Location(str(tmp_path)))

    assert folder.entries("") == [
        FolderEntry("a", is_folder=True),
        FolderEntry("gone", exists=False),
        FolderEntry("itself", exists=False),
        FolderEntry("round", is_folder=True, is_link=True),
    ]
    assert folder.entries("a") == [FolderEntry("file", 3, is_file=True)]
    assert list(folder.files_below("")) == list(folder.files_below("", follow=False))
    for follow, more in ((False, ["round"]), (True, [])):
        found = sorted(folder.files_below("", follow=follow))
        assert found == ["a/file", "gone", "itself", *more]

"""Paths that a user may choose for a file that a command writes."""

import os
import pathlib


def assert_stay(write, folder, capfd):
    """Each path gets the text and stays what it is; stdout is a file, as in `> file`.

    Args:
        write: A function of a path and a text.
        folder: An empty folder.
        capfd: The fixture of pytest.
    """
    file, link, pipe = (folder / name for name in ("file", "link", "pipe"))
    link.symlink_to(file.name)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    print("before")
    for path, read in (
        (link, file.read_text),  # no file is there yet
        (file, file.read_text),
        (link, file.read_text),
        (pipe, lambda: os.read(reader, 99).decode()),
    ):
        text = f"for {path.name}\n"
        write(path, text)
        assert read() == text
    os.close(reader)
    for name in ("stdout", "fd/1", "null"):
        write(pathlib.Path("/dev", name), f"for {name}\n")
    print("after")

    assert capfd.readouterr().out == "before\nfor stdout\nfor fd/1\nafter\n"
    assert link.is_symlink()
    assert sorted(folder.iterdir()) == [file, link, pipe]
    assert pathlib.Path("/dev/null").is_char_device()

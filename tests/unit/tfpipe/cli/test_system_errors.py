"""tfpipe.cli.system_errors: an error of the system names the flag of its path."""

import errno
import os
import pathlib
from collections.abc import Callable
from typing import NoReturn

import pytest

from tfpipe import cli
from tfpipe.cli import fields, system_errors


@cli.options
class Options:
    """Options with paths of several kinds."""

    data_dir: str = cli.argument("A folder.", shown="DIR")
    input: tuple[str, ...] = cli.flag((), "Inputs.")
    work_dir: str | None = cli.flag(None, "A folder.")


OPTIONS = Options(data_dir="data", input=("a-{000..009}.tar", "b=more/c.csv"))
CHECK = "Check the name and its folder."


@pytest.mark.parametrize(
    ("number", "filename", "message"),
    [
        (
            errno.ENOENT,
            "data",
            f"data cannot be used: No such file or directory. {CHECK}",
        ),
        (
            errno.ENOENT,
            "data/index.json",
            "data cannot be used: No such file or directory: data/index.json. " + CHECK,
        ),
        (errno.ENOENT, "a-003.tar", "--input=a-{000..009}.tar cannot be used: No such"),
        (
            errno.EISDIR,
            os.path.abspath("more/c.csv"),
            "--input=b=more/c.csv cannot be u",
        ),
        (
            errno.EACCES,
            "database",
            "database cannot be used: Permission denied. Give th",
        ),
        (
            errno.ENOMEM,
            pathlib.Path("data/dali_idx"),  # as of shutil.rmtree
            "data cannot be used: Cannot allocate memory: data/dali_idx.",
        ),
        (
            errno.ENOSPC,
            None,
            "No space left on device. Make room on the disk, or name ",
        ),
    ],
)
def test_the_message_names_flag_path_and_remedy(
    number: int, filename: str | pathlib.Path | None, message: str
) -> None:
    error = OSError(number, os.strerror(number), filename)

    text = system_errors.text(error, fields.options_of(Options), OPTIONS)

    assert text.startswith(message)


def _write_text(folder: pathlib.Path) -> None:
    (folder / "full.json").write_text("x")


def _write(folder: pathlib.Path) -> None:
    with open(folder / "full.json", "w") as file:
        _fail(file)


def _fail(file: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("work", [_write_text, _write])
def test_an_error_of_an_open_file_names_the_file_nevertheless(
    work: Callable[[pathlib.Path], None],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if work is _write_text:
        monkeypatch.setattr(pathlib.Path, "open", lambda self, *_, **__: _fail(self))
    with pytest.raises(OSError, match="No space") as raised:
        work(tmp_path)

    text = system_errors.text(raised.value, fields.options_of(Options), OPTIONS)

    assert text.startswith(f"{tmp_path / 'full.json'} cannot be used: No space left on")


def test_an_error_with_a_message_of_its_own_keeps_it() -> None:
    error = FileNotFoundError("Install Horovod as BUILD.md says.")

    assert system_errors.text(error, (), OPTIONS) == str(error)

"""What commands print on a real terminal: at most seven lines, the answer first."""

import os
import pathlib
import pty
import subprocess
import sys

import pytest

LAUNCHER = """
import subprocess, sys
rank = "from tfpipe.cli import output; print(output.has_terminal(), output.width())"
done = subprocess.run([sys.executable, "-c", rank], stdout=subprocess.PIPE)
print(done.stdout.decode(), end="")
"""


@pytest.mark.parametrize(
    ("name", "is_terminal", "expected"),
    [
        ("horovodrun", True, "True 68"),
        ("horovodrun", False, "False 80"),
        ("other", True, "False 80"),
    ],
)
def test_rank_has_the_terminal_of_its_launcher(
    name: str, is_terminal: bool, expected: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / name).write_text(LAUNCHER)
    other, own = pty.openpty()
    reader, pipe = os.pipe()
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "HOROVOD_RANK": "0", "PYTHONPATH": str(root)}

    subprocess.run(
        [sys.executable, tmp_path / name],
        stdout=own if is_terminal else pipe,
        env=environment,
        check=True,
    )

    printed = os.read(other if is_terminal else reader, 999).decode().strip()
    for end in (other, own, reader, pipe):
        os.close(end)
    assert printed == expected

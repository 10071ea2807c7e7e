"""An image that needs more memory than there is ends the conversion with its name."""

import io
import pathlib
import subprocess
import sys

import PIL.Image

from tests.support.data.trees import make_tree

_IN_LITTLE_MEMORY = """
import re, resource, sys
from tfpipe import cli
from converters import imagenet
from converters.images import pillow
from converters.jobs import publish
used = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1])
limit = (used << 10) + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cli.run(*imagenet.COMMANDS)
"""


def test_image_that_does_not_fit_into_memory_is_named(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path / "raw", num_images=1)
    out = io.BytesIO()
    PIL.Image.new("L", (6000, 6000)).convert("RGB").save(out, "PNG")
    path = next((root / "train").rglob("*.JPEG"))
    path.write_bytes(out.getvalue())
    arguments = [f"--input_dir={root}", f"--output_dir={tmp_path / 'out'}"]

    done = subprocess.run(
        [sys.executable, "-c", _IN_LITTLE_MEMORY, *arguments, "--num_workers=1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {path}: ")
    assert "needs more memory than there is" in done.stderr
    assert done.stderr.count("\n") == 1

"""Inputs that were made to do harm end soon, in little memory, with one line."""

import gzip
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable

import pytest

from converters.inputs import boxes, ilsvrc
from tests.support.data.jpegs import many_scans
from tests.support.data.trees import SYNSETS, make_jpeg, make_tree, read_boxes
from tests.unit.converters.inputs.test_boxes import make_xml

# Starts the command, ends it if it hangs, and measures its memory. Linux counts the
# memory of a parent for its child, so that the parent must be small.
LAUNCHER = """
import json, os, signal, sys
seconds, *command = sys.argv[1:]
child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *command])
signal.signal(signal.SIGALRM, lambda number, frame: os.kill(child, 9))
signal.alarm(int(seconds))
_, status, used = os.wait4(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024]))
"""
# The tests' own machine may be slow; the command takes about a second.
_TIMEOUT_SECONDS = 60
_MAX_BYTES = 1_000_000_000
XML_NAME = f"{SYNSETS[0]}_0.xml"


def run(
    module: str, root: pathlib.Path, *options: str
) -> tuple[int, str, pathlib.Path, int]:
    """Returns exit code, text on stderr, output folder and peak memory in bytes."""
    out = root.with_name(f"{root.name}-out")
    done = subprocess.run(
        [
            *(sys.executable, "-S", "-c", LAUNCHER, str(_TIMEOUT_SECONDS)),
            *("-m", f"converters.{module}"),
            *(f"--input_dir={root}", f"--output_dir={out}", "--num_workers=1"),
            *options,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    code, memory = json.loads(done.stdout.splitlines()[-1])
    return code, done.stderr, out, memory


def _packed_boxes(root: pathlib.Path, name: str, num_bytes: int, count: int) -> None:
    """Writes an archive of files of spaces, which pack to a thousandth."""
    path = make_tree(root, num_images=4) / boxes.TAR_NAMES[0]
    with gzip.open(path, "wb") as file:
        for number in range(count):
            info = tarfile.TarInfo(name.format(number))
            info.size = num_bytes
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.write(b" " * (num_bytes + -num_bytes % 512))
        file.write(bytes(1024))


def _one_large_xml(root: pathlib.Path) -> None:
    _packed_boxes(root, XML_NAME, 1 << 25, 1)


def _many_xml(root: pathlib.Path) -> None:
    """Packs boxes of a class that is not converted, so that no file is parsed."""
    _packed_boxes(root, "n99999999_{}.xml", 1_500_000, 70)


def _other_files(root: pathlib.Path) -> None:
    _packed_boxes(root, "{}.txt", 1_500_000, 70)


def _negative_size(root: pathlib.Path) -> None:
    """Writes a tar whose next header is the same header."""
    make_tree(root, num_images=4)
    block = bytearray(tarfile.TarInfo("notes.txt").tobuf())
    block[124:136] = b"-0000001000\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (root / "train" / "n01496331.tar").write_bytes(bytes(block) + bytes(1024))


def _deep_xml(root: pathlib.Path) -> None:
    path = make_tree(root, num_images=4) / "bbox" / XML_NAME
    path.parent.mkdir()
    path.write_bytes(b"<object>" * 500_000 + b"</object>" * 500_000)


def _many_tags(root: pathlib.Path) -> None:
    path = make_tree(root, num_images=4) / "bbox" / XML_NAME
    path.parent.mkdir()
    path.write_bytes(b"<a>" + b"<a/>" * 3_000_000 + b"</a>")


def _pipe_as_tar(root: pathlib.Path) -> None:
    shutil.rmtree(make_tree(root, num_images=4) / "train")
    os.mkfifo(root / ilsvrc.TRAIN_TAR)


def _pipe_as_list(root: pathlib.Path) -> None:
    os.mkfifo(make_tree(root, num_images=4) / "synsets.txt")


def _links_to_each_other(root: pathlib.Path) -> None:
    """Makes as many classes as there are orders of eight folders."""
    folders = [root / f"c{number}" for number in range(8)]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "1.jpg").write_bytes(make_jpeg(number))
        for other in folders:
            if other != folder:
                (folder / f"to-{other.name}").symlink_to(other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_one_large_xml, r"v2.tar.gz: n01440764_0.xml must have at most 16,777,216"),
        (_many_xml, r"v2.tar.gz must unpack to at most 200 times its size"),
        (_other_files, r"v2.tar.gz must unpack to at most 200 times its size"),
        (_negative_size, r"n01496331.tar is damaged: the header at byte 0 gives the s"),
        (
            _deep_xml,
            r"n01440764_0.xml in .*: it must have at most 1,000,000 elem",
        ),
        (
            _many_tags,
            r"n01440764_0.xml in .*: it must have at most 1,000,000 elem",
        ),
        (_pipe_as_tar, r"img_train.tar must be a file, got a pipe"),
        (_pipe_as_list, r"synsets.txt must be a file, got a pipe"),
        (_links_to_each_other, r"reached by at most 100 ways, got more for .*/c0/to-"),
    ],
)
def test_hostile_input_is_one_line_soon_and_in_little_memory(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path], None], message: str
) -> None:
    root = tmp_path / make.__name__
    make(root)
    module = "folder" if make is _links_to_each_other else "imagenet"

    code, errors, out, memory = run(module, root)

    assert code == 1
    assert re.fullmatch(f"Error: .*{message}.*\n", errors), errors
    assert not out.exists()
    assert memory < _MAX_BYTES


def test_pipes_and_devices_among_the_files_are_named(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path / "raw", num_images=4)
    (root / "bbox").mkdir()
    os.mkfifo(root / "bbox" / XML_NAME)
    os.mkfifo(root / "train" / SYNSETS[0] / "pipe.JPEG")
    (root / "train" / SYNSETS[0] / "device.JPEG").symlink_to("/dev/zero")
    os.mkfifo(root / "train" / "n01496331.tar")

    code, errors, out, _ = run("imagenet", root)

    assert (code, errors) == (0, "")
    lines = (out / "rejects.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"]: json.loads(line)["reason"] for line in lines} == {
        f"bbox/{XML_NAME}": "bbox_file_not_read",
        f"train/{SYNSETS[0]}/pipe.JPEG": "not_a_file",
        f"train/{SYNSETS[0]}/device.JPEG": "not_a_file",
        "train/n01496331.tar": "not_a_file",
    }


def test_image_may_have_70_000_boxes(tmp_path: pathlib.Path) -> None:
    corners = [(SYNSETS[0], 1.0, 2.0, 30.0, 40.0)] * 70_000
    path = tmp_path / "bbox" / f"{SYNSETS[0]}_1.xml"
    path.parent.mkdir()
    path.write_bytes(make_xml(corners))

    assert len(read_boxes(tmp_path).of(f"{SYNSETS[0]}_1")) == 70_000


def _blank_png(width: int, height: int) -> bytes:
    """Returns a PNG with a header but without pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.fixture(scope="module")
def too_much(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree with three images that cost too much."""
    root = make_tree(tmp_path_factory.mktemp("too_much") / "raw", num_images=4)
    folder = root / "train" / SYNSETS[0]
    (folder / "wide.JPEG").write_bytes(_blank_png(13_300, 13_300))
    # Decoding this takes as long as 200 million pixels in ten scans.
    (folder / "slow.JPEG").write_bytes(many_scans(1_000, 1_000, 2_000))
    with open(folder / "huge.JPEG", "wb") as file:
        file.write(make_jpeg(0))
        file.truncate((2 << 30) + 1)  # a hole: takes no disk
    return root


@pytest.mark.parametrize("options", [(), ("--decode=full",), ("--max_side=100",)])
def test_images_that_cost_too_much_are_left_out_and_named(
    too_much: pathlib.Path, options: tuple[str, ...]
) -> None:
    code, errors, out, memory = run("imagenet", too_much, "--overwrite", *options)

    assert (code, errors) == (0, "")
    assert memory < _MAX_BYTES
    rejects = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
    found = {reject["name"].rpartition("/")[2]: reject for reject in rejects}
    assert {name: reject["reason"] for name, reject in found.items()} == {
        "wide.JPEG": "too_expensive",
        "slow.JPEG": "too_expensive",
        "huge.JPEG": "too_many_bytes",
    }
    assert "1000x1000 in 2010 scans" in found["slow.JPEG"]["detail"]
    assert "got 13300x13300" in found["wide.JPEG"]["detail"]

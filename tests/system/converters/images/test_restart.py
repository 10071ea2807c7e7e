"""The flag --restart_rows of the commands, and the study of decoding what it makes."""

import re

import pytest

from converters.images import policy as image_policy
from studies import decode, decode_variants
from tests.support.data.native_op import native_op  # noqa: F401
from tests.support.data.trees import convert, make_tree
from tests.support.processes import commands


@pytest.mark.parametrize("module", ["imagenet", "folder"])
def test_without_the_library_it_is_an_error_before_any_work(
    module, tmp_path, monkeypatch
):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "empty"))

    words = [f"--input_dir={tmp_path / 'none'}", f"--output_dir={tmp_path / 'out'}"]
    done = commands.run(f"converters.{module}", "--restart_rows", *words)

    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: --restart_rows needs a native library, but rewrite-")
    # This host has all that the command needs.
    assert re.search(r"is not built\. Run: \S*python\S* -m tfpipe\.native$", line)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("native_op")
def test_benchmark_reads_the_folder_of_each_way(tmp_path):
    raw_dir, folder = make_tree(tmp_path / "raw", num_images=10), tmp_path / "rewritten"
    convert(raw_dir, folder, policy=image_policy.Policy(restart_rows=True))
    job = decode_variants.Job(
        data_dir="none",
        rewritten_data_dir=str(folder),
        image_size=16,
        batch_size=2,
        num_warmup_images=2,
        num_timed_images=4,
    )

    ways = [way for way in decode_variants.VARIANTS if way.startswith("rewritten_")]
    assert ways
    for way in ways:
        assert decode_variants.measure(way, job)["num_images"] == 4


def test_benchmark_needs_the_folder_for_those_ways():
    done = commands.answer(decode.COMMANDS, "--data_dir=none", "--ways=rewritten_uint8")

    assert done.returncode == 1
    message = "--rewritten_data_dir must be given for rewritten_uint8"
    assert message in done.stderr

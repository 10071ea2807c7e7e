"""Each command that copies or draws, killed at any change of a file and run again."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.torture import rounds

pytestmark = needs_native

# Changes of a file from one kill to the next one.
STEP = rounds(few=9, many=1)

_SCRIPT = """
import fcntl, json, os, pathlib, shutil, sys
from converters import export, query, replicate, synthesize, verify
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.carried import make_table
from tests.support.data.trees import convert, digests, make_tree

root, name, step = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
CALLS = [(os, n) for n in ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync")]
CALLS.append((fcntl, "flock"))
source, common = str(root / "set"), {"num_workers": 2, "fsync": True}

def kill_at(number):
    left = iter(range(number))
    for module, call_name in CALLS:
        def call(*arguments, original=getattr(module, call_name), **options):
            if next(left, None) is None:
                os.kill(os.getpid(), 9)
            return original(*arguments, **options)
        setattr(module, call_name, call)

def run(out):
    kind, _, option = name.partition("-")
    if kind == "export":
        options = {"data_dir": source, "output_dir": str(out), "format": option}
        export.export(export.ExportOptions(**options, **common))
    elif kind == "replicate":
        options = {"data_dir": source, "output_dir": str(out), "copies": 2}
        options["identical"] = option == "identical"
        replicate.make_copies(ReplicateOptions(**options, **common))
    elif kind == "query":
        query.ask(QueryOptions(data_dir=source, materialize=str(out), **common))
    elif kind == "repair":
        checked = verify.verify(verify.VerifyOptions(
            data_dir=str(out), input_dir=str(root / "raw"), repair=True, num_workers=2
        ))
        assert checked.faults == []
    else:
        synthesize.synthesize(synthesize.SynthesizeOptions(
            output_dir=out, num_images=4, num_classes=2, size_scale=0.02
        ))

def child(work):
    # The processes that fork have opened no database.
    if not (number := os.fork()):
        sys.stderr.flush()
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitpid(number, 0)[1]

def prepare(out):
    # The output of a repair is a data set with a damaged shard.
    if name != "repair":
        return
    shutil.copytree(root / "sound", out)
    shard = out / "train-00000-of-00002"
    content = shard.read_bytes()
    shard.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])

assert child(lambda: make_table(root)) == 0
make_tree(root / "raw", num_images=6)
assert child(lambda: convert(root / "raw", root / "sound", num_train_shards=2)) == 0
prepare(root / "whole")
assert child(lambda: run(root / "whole")) == 0
expected, failures, kills = digests(root / "whole"), [], 0
status, at = 9, 0
while status:  # a worker may be killed as well
    out = root / f"out-{at}"
    prepare(out)
    status = child(lambda: (kill_at(at), run(out)))
    kills += status != 0
    for turn in ("first", "second"):
        if child(lambda: run(out)):
            failures.append(f"call {at}: the {turn} command after it failed")
    if digests(out) != expected:
        failures.append(f"call {at}: {sorted(digests(out))}")
    shutil.rmtree(out)
    at += step
print(json.dumps({"kills": kills, "failures": failures}))
"""


@pytest.mark.parametrize(
    "name",
    [
        *("export-tree", "export-webdataset", "export-parquet"),
        *("replicate-distinct", "replicate-identical", "query"),
        *("repair", "synthesize"),
    ],
)
def test_a_killed_command_is_ended_by_the_same_command(
    tmp_path: pathlib.Path, name: str
) -> None:
    """After a kill the command ends, and again when all is there, with equal bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, tmp_path, name, str(STEP)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["failures"] == [], done.stderr
    assert report["kills"] > 10 / STEP

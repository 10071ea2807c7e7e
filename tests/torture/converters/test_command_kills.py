"""Each command that writes, killed at any change of a file and run again."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.torture import RecordProperty, rounds

pytestmark = needs_native

# Changes of a file from one kill to the next one. `test_kill_points` kills conversions
# at more points; here each reader is killed at a few.
STEP = rounds(few=9, many=1)
STEP_OF_READERS = rounds(few=31, many=2)

_SCRIPT = """
import fcntl, json, os, pathlib, shutil, sqlite3, sys
from converters import export, query, replicate, synthesize, verify
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.carried import make_table
from tests.support.data.conversions import conversion
from tests.support.data.trees import convert, digests, make_jpeg, make_tree

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

PLACES = {
    **dict.fromkeys(("imagenet", "folder"), {"input_dir": str(root / "raw")}),
    "table": {"input": str(root / "images.db#images")},
    "webdataset": {"input": [str(root / "tars/*.tar")]},
    "tfrecord": {"input": [str(root / "records/*")]},
    "merge": {"sources": {"a": str(root / "images.db#images"), "b": source}},
}
# Another value of an option, for which a folder that is there is refused.
OTHERS = {
    **dict.fromkeys((*PLACES, "synthesize"), {"seed": 5}),
    "export-tree": {"format": "webdataset"},
    **dict.fromkeys(("export-webdataset", "export-parquet"), {"format": "tree"}),
    **dict.fromkeys(("replicate-distinct", "replicate-identical"), {"copies": 3}),
    "query": {"clause": "label = 1"},
}

def run(out, **more):
    kind, _, option = name.partition("-")
    to = {"output_dir": str(out)} | common
    if kind in PLACES:
        conversion(kind, **PLACES[kind] | {"num_train_shards": 2} | to | more).convert()
    elif kind == "export":
        options = {"data_dir": source, "format": option} | to | more
        export.export(export.ExportOptions(**options))
    elif kind == "replicate":
        options = {"copies": 2, "identical": option == "identical"} | to | more
        replicate.make_copies(ReplicateOptions(data_dir=source, **options))
    elif name == "query":
        options = {"materialize": str(out)} | common | more
        query.ask(QueryOptions(data_dir=source, **options))
    elif name == "query-save":
        out.mkdir(exist_ok=True)
        query.ask(QueryOptions(data_dir=source, save=str(out / "s.parquet"), **more))
    elif kind == "repair":
        checked = verify.verify(verify.VerifyOptions(
            data_dir=str(out), input_dir=str(root / "raw"), repair=True, num_workers=2
        ))
        assert checked.faults == []
    else:
        options = {"num_images": 4, "num_classes": 2, "size_scale": 0.02} | more
        synthesize.synthesize(synthesize.SynthesizeOptions(output_dir=out, **options))

def child(work):
    # The processes that fork have opened no database.
    read, write = os.pipe()
    if not (number := os.fork()):
        sys.stderr.flush()
        try:
            work()
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:4096])
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return os.waitpid(number, 0)[1], pipe.read()

def make_inputs():
    make_tree(root / "raw", num_images=6)
    tars = {"output_dir": str(root / "tars"), "format": "webdataset"} | common
    export.export(export.ExportOptions(data_dir=source, **tars))
    (root / "records").mkdir()
    for path in (root / "set").glob("train-*"):
        shutil.copy(path, root / "records" / f"{path.name}.tfrecord")
    with sqlite3.connect(root / "images.db") as connection:
        connection.execute("CREATE TABLE images (image BLOB, label TEXT)")
        rows = [(make_jpeg(number), "ab"[number % 2]) for number in range(8)]
        connection.executemany("INSERT INTO images VALUES (?, ?)", rows)
    connection.close()

def prepare(out):
    # The output of a repair is a data set with a damaged shard.
    if name != "repair":
        return
    shutil.copytree(root / "sound", out)
    shard = out / "train-00000-of-00002"
    content = shard.read_bytes()
    shard.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])

done = (0, "")
assert child(lambda: make_table(root)) == done
assert child(make_inputs) == done
assert child(lambda: convert(root / "raw", root / "sound", num_train_shards=2)) == done
prepare(root / "whole")
assert child(lambda: run(root / "whole")) == done
expected, failures, kills = digests(root / "whole"), [], 0
status, at = 9, 0
while status:  # a worker may be killed as well
    out = root / f"out-{at}"
    prepare(out)
    status, _ = child(lambda: (kill_at(at), run(out)))
    kills += status != 0
    for turn in ("first", "second"):
        if (ended := child(lambda: run(out))) != done:
            failures.append(f"call {at}: the {turn} command after it: {ended}")
    if name in OTHERS:
        code, said = child(lambda: run(out, **OTHERS[name]))
        if not code or "differs from this one" not in said:
            failures.append(f"call {at}: another option: {said}")
    if digests(out) != expected:
        failures.append(f"call {at}: {sorted(digests(out))}")
    shutil.rmtree(out)
    at += step
print(json.dumps({"kills": kills, "failures": failures}))
"""


READERS = ("imagenet", "folder", "table", "webdataset", "tfrecord", "merge")


@pytest.mark.parametrize(
    "name",
    [
        *READERS,
        *("export-tree", "export-webdataset", "export-parquet"),
        *("replicate-distinct", "replicate-identical", "query", "query-save"),
        *("repair", "synthesize"),
    ],
)
def test_a_killed_command_is_ended_by_the_same_command(
    tmp_path: pathlib.Path, name: str, record_property: RecordProperty
) -> None:
    """After a kill the command ends, and again when all is there, with equal bytes.

    With another value of an option the command names the difference.
    """
    step = STEP_OF_READERS if name in READERS else STEP
    if name == "query-save":  # few changes
        step = 1
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, tmp_path, name, str(step)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["failures"] == [], done.stderr
    assert report["kills"] > min(2, 10 / step)
    record_property("injections", report["kills"])

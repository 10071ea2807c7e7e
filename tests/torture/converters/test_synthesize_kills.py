"""converters.synthesize, killed at any change of a file."""

import pathlib
import subprocess
import sys

from tests.support.faults.torture import RecordProperty, rounds

# Changes of a file from one kill to the next one.
STEP = rounds(few=5, many=1)

_KILLED_SCRIPT = """
import os, pathlib, sys
from converters import synthesize

def kill_at(number):
    left = iter(range(number))
    for module, name in ((os, "rename"), (os, "unlink"), (os, "rmdir"), (os, "mkdir")):
        def call(*arguments, original=getattr(module, name), **options):
            if next(left, None) is None:
                os.kill(os.getpid(), 9)
            return original(*arguments, **options)
        setattr(module, name, call)

def run(number):
    synthesize.synthesize(
        synthesize.SynthesizeOptions(
            output_dir=folder / "raw",
            num_images=4,
            num_classes=2,
            size_scale=0.02,
            seed=number,
            overwrite=True,
        )
    )

folder, step = pathlib.Path(sys.argv[1]), int(sys.argv[2])
status, number = None, 0
run(0)
while status != 0:
    if not (child := os.fork()):
        kill_at(number)
        run(number)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    places = [folder / "raw", folder / ".raw.synthesize-old"]
    assert any(len(list(place.glob("train/*/*"))) == 4 for place in places)
    number += step
print(number)
"""


def test_run_killed_at_any_change_of_a_file_is_cleared_up_by_the_next(
    tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    """Each run starts from the folder of the run before; the last run is not killed."""
    script = tmp_path / "script.py"
    script.write_text(_KILLED_SCRIPT)
    (tmp_path / "out").mkdir()

    done = subprocess.run(
        [sys.executable, script, tmp_path / "out", str(STEP)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
    record_property("injections", int(done.stdout) // STEP)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["raw"]

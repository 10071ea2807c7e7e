"""converters.verify under each errno: `python -m tests.support.faults.verify_table`.

In: a data set, the folder of its images, and the number of errnos that a file meets.
Out: a line of JSON for each level, file and errno: the error and the faults. Files of
one kind fail to open or to be read, all others work. The process runs with
`failing_files.environment`.
"""

import errno
import itertools
import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from converters import verify
from converters.checks.shard import LEVELS
from tests.support.faults.error_table import CALLS
from tests.support.faults.failing_files import failing
from tfpipe.shards import index

SHARD, IMAGES = "train-00001", "train/n"
FILES = (SHARD, index.INDEX_NAME, index.CATALOG_NAME, "classes.tsv", IMAGES)
# A file that does not exist is a fault of a data set.
_CALLS = [call for call in CALLS if call[1] != "ENOENT"]


Row = dict[str, Any]


def _rows(
    options: verify.VerifyOptions, file: str, calls: Iterator[Any]
) -> Iterator[Row]:
    above = options.input_dir if file == IMAGES else options.data_dir
    part = str(pathlib.Path(str(above), file))
    for call, name in calls:
        error, faults = "", []
        try:
            with failing(part, getattr(errno, name), at=call):
                faults = [*map(str, verify.verify(options).faults)]
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        row = {"level": options.level, "file": file, "call": call, "errno": name}
        yield row | {"error": error, "faults": faults}


def _main(data_dir: str, input_dir: str, count: int) -> None:
    calls = itertools.cycle(_CALLS)
    tables = [
        (file, {"data_dir": data_dir, "input_dir": input_dir, "level": level})
        for level, file in itertools.product(LEVELS, FILES)
    ]
    with tempfile.TemporaryDirectory() as foreign:  # shards without an index
        for shard in pathlib.Path(data_dir).glob("*-of-*"):
            shutil.copy(shard, foreign)
        of_foreign = ({"data_dir": foreign, "level": each} for each in LEVELS[1:4])
        tables += [(SHARD, options) for options in of_foreign]
        for file, options in tables:
            made = verify.VerifyOptions(**options, num_workers=1)
            for row in _rows(made, file, itertools.islice(calls, count)):
                has_index = options["data_dir"] == data_dir
                print(json.dumps(row | {"has_index": has_index}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

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
import sys

from converters import verify
from converters.checks.shard import LEVELS
from tests.support.faults.error_table import CALLS
from tests.support.faults.failing_files import failing
from tfpipe.shards import index

SHARD, IMAGES = "train-00001", "train/n"
FILES = (SHARD, index.INDEX_NAME, index.CATALOG_NAME, "classes.tsv", IMAGES)
# A file that does not exist is a fault of a data set.
_CALLS = [call for call in CALLS if call[1] != "ENOENT"]


def _main(data_dir: str, input_dir: str, count: int) -> None:
    calls = itertools.cycle(_CALLS)
    for level, file in itertools.product(LEVELS, FILES):
        options = verify.VerifyOptions(
            data_dir=data_dir, input_dir=input_dir, level=level, num_workers=1
        )
        part = str(pathlib.Path(input_dir if file == IMAGES else data_dir, file))
        for call, name in itertools.islice(calls, count):
            error, faults = "", []
            try:
                with failing(part, getattr(errno, name), at=call):
                    faults = [*map(str, verify.verify(options).faults)]
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            row = {"level": level, "file": file, "call": call, "errno": name}
            print(json.dumps(row | {"error": error, "faults": faults}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

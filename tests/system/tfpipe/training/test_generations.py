"""Two ranks train on a data set that grows, are killed, and go on."""

import collections
import dataclasses
import json
import pathlib
import subprocess

from converters.streams import growing
from tests.support.data.trees import convert, make_tree
from tests.support.processes import horovodrun
from tfpipe.location.files import Files
from tfpipe.shards import generations, index

SIZES = (8, 10, 12)  # records of each folder
MODULE = "tests.support.processes.epochs_of_generations"


def _folders(top: pathlib.Path, raw: pathlib.Path) -> list[generations.ShardFolder]:
    """Converts the folders of three generations, and publishes the first."""
    folders = []
    for number, size in enumerate(SIZES, 1):
        name = f"gen-{number:06d}"
        convert(make_tree(raw / name, num_images=size), top / name)
        folders.append(growing.folder_of(name, index.load(top / name)))
    assert generations.publish(Files(str(top)), (), folders[:1])
    return folders


def test_each_epoch_reads_its_generation_once_in_spite_of_a_kill(
    tmp_path: pathlib.Path,
) -> None:
    _, *later = _folders(tmp_path / "set", tmp_path / "raw")
    job = {
        "data_dir": str(tmp_path / "set"),
        "num_epochs": 4,
        # The epochs 0 and 1 go on in their generations while newer ones appear.
        "publishes": {str(n): dataclasses.asdict(e) for n, e in enumerate(later)},
        "dies": [1, 5],
    }
    path = tmp_path / "job.json"
    for dies in (job["dies"], None):
        path.write_text(json.dumps(job | {"dies": dies}))
        done = subprocess.run(
            horovodrun.command(2, "-m", MODULE, path, tmp_path),
            env=horovodrun.environment(TFPIPE_SHARD_CACHE=str(tmp_path / "near")),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode == 0) == (dies is None), done.stderr[-4000:]

    records: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    for line in (tmp_path / "steps").read_text().splitlines():
        epoch, generation, ids = json.loads(line)
        records[epoch, generation] += [each for of_rank in ids for each in of_rank]
    totals = [sum(SIZES[:count]) for count in (1, 2, 3)]
    assert [*records] == [(0, 1), (1, 2), (2, 3), (3, 3)]
    for (_, generation), ids in records.items():
        assert sorted(ids) == [*range(totals[generation - 1])]

"""Ranks that read a growing data set, each epoch in the newest generation.

horovodrun -np 2 python -m tests.support.processes.epochs_of_generations JOB.json FOLDER

The job holds `data_dir`; `num_epochs`; `publishes`, the folder that rank 0
publishes in the middle of an epoch, by the epoch; and `dies`, [epoch, step] at which
the last rank kills itself, or null. Rank 0 appends the epoch, the generation and the
records of each step to FOLDER/steps, and then replaces FOLDER/state. Ranks that are
started again go on from there.
"""

import json
import os
import pathlib
import signal
import sys

import tfpipe
from benchmarks.distributed import ranks
from tfpipe.location.files import Files
from tfpipe.shards import generations


def main() -> None:
    job, folder = (
        json.loads(pathlib.Path(sys.argv[1]).read_text()),
        pathlib.Path(sys.argv[2]),
    )
    world = ranks.connect()
    saved = folder / "state"
    state = tfpipe.State()
    if saved.exists():
        state = tfpipe.State.from_json(saved.read_text())
    source = tfpipe.TFRecordSource(
        job["data_dir"],
        generation=state.generation or 1,
        refresh=True,
        rank=world.rank,
        num_ranks=world.num_ranks,
    )
    while state.epoch < job["num_epochs"]:
        newest = source.newest_generation() if world.is_first else 0
        source, state = source.at_state(state, newest=max(world.gather(newest)))
        stages = [tfpipe.Interleave(), tfpipe.Batch(source.batch_size)]
        epoch = tfpipe.Pipeline(source, stages).build(state=state)
        for batch in epoch.as_numpy_iterator():
            is_last = world.rank == world.num_ranks - 1
            if is_last and job["dies"] == [state.epoch, state.step]:
                os.kill(os.getpid(), signal.SIGKILL)
            ids = world.gather(batch["record_id"].tolist())
            read, state = (state.epoch, source.generation), source.advance(state)
            if world.is_first:
                with open(folder / "steps", "a") as steps:
                    steps.write(json.dumps([*read, ids]) + "\n")
                part = saved.with_suffix(".part")
                part.write_text(state.to_json())
                part.replace(saved)
                if state.step == 2:
                    _publish(job, state.epoch)


def _publish(job: dict[str, dict[str, object]], epoch: int) -> None:
    """Publishes the generation of an epoch, unless it is published."""
    files = Files(str(job["data_dir"]))
    log = generations.read_log(files)
    folder = job["publishes"].get(str(epoch))
    if isinstance(folder, dict) and len(log) == epoch + 1:
        assert generations.publish(files, log, [generations.ShardFolder(**folder)])


if __name__ == "__main__":
    main()

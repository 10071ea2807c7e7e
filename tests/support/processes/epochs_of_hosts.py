"""Ranks that read epochs of a data set through a shard cache of their host.

horovodrun -np 2 python -m tests.support.processes.epochs_of_hosts JOB.json FOLDER

The job holds `source`, the arguments of a `TFRecordSource`; `num_epochs`; and `dies`, a
step after which the last rank kills itself, or null. All ranks make their steps
together. Rank 0 appends the epoch and the records of each step to FOLDER/steps, and
then replaces FOLDER/state. Ranks that are started again go on from there.
"""

import json
import os
import pathlib
import signal
import sys

import tfpipe
from benchmarks.distributed import ranks


def main() -> None:
    job, folder = (
        json.loads(pathlib.Path(sys.argv[1]).read_text()),
        pathlib.Path(sys.argv[2]),
    )
    world = ranks.connect()
    options = dict(job["source"])
    cache = tfpipe.ShardCache(**options.pop("shard_cache"))
    source = tfpipe.TFRecordSource(
        **options,
        shard_cache=cache,
        rank=world.rank,
        num_ranks=world.num_ranks,
        hosts=world.hosts(),
    )
    stages = [tfpipe.Interleave(), tfpipe.Batch(source.batch_size)]
    pipeline = tfpipe.Pipeline(source, stages)
    saved = folder / "state"
    state = tfpipe.State()
    if saved.exists():
        state = tfpipe.State.from_json(saved.read_text())
    num_epochs = job["num_epochs"] - state.epoch
    dataset = pipeline.build(state=state, num_epochs=num_epochs)
    for step, batch in enumerate(dataset.as_numpy_iterator()):
        if step == job["dies"] and world.rank == world.num_ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ids = world.gather(batch["record_id"].tolist())
        epoch, state = state.epoch, source.advance(state)
        if world.is_first:
            with open(folder / "steps", "a") as steps:
                steps.write(json.dumps([epoch, ids]) + "\n")
            part = saved.with_suffix(".part")
            part.write_text(state.to_json())
            part.replace(saved)
    if (statistics := source.cache_statistics()) is not None:
        path = folder / f"fetched-{world.rank}"
        path.write_text(str(statistics.bytes_from_server))


if __name__ == "__main__":
    main()

"""Views of shares of a data set, one of them measured a process.

  python -m studies.subset.variants NAME '{"data_dir": "DIR", ...}'

In: the name of a variant and the fields of `interleaved.Job`. Out: a line of JSON with
its seconds and CPU-seconds. `studies.subset` starts this module for each
run.
"""

import json
import sys
import time

import numpy as np

import tfpipe
from studies import interleaved
from studies.interleaved import Job

# Name of a variant -> whether it decodes, and the share of the records in its view.
VARIANTS = {
    f"{work} {share:.0%}": (work == "train", share)
    for work in ("train", "read")
    for share in (1.0, 0.1, 0.01)
}


def pipeline_of(name: str, job: Job) -> tfpipe.Pipeline:
    """Returns the pipeline of a variant; its records are drawn with a fixed seed."""
    decodes, share = VARIANTS[name]
    source = tfpipe.TFRecordSource(
        job.data_dir, "train", batch_size=job.batch_size, subset=_view(job, share)
    )
    if decodes:
        return tfpipe.imagenet_train(source, image_size=job.image_size)
    stages = [tfpipe.Interleave(), tfpipe.Batch(job.batch_size), tfpipe.Prefetch()]
    return tfpipe.Pipeline(source, stages)


def _view(job: Job, share: float) -> tfpipe.Subset | None:
    """Returns a share of the records of the train split; None is all of them."""
    if share == 1:
        return None
    known = tfpipe.TFRecordSource(job.data_dir, "train").index
    num_records = known.num_records("train")
    num_chosen = max(round(num_records * share), job.batch_size)
    random = np.random.default_rng(0)
    chosen = random.choice(num_records, num_chosen, replace=False)
    return tfpipe.Subset.of_records(known, "train", chosen)


def main(argv: list[str]) -> None:
    """Measures the variant of the command line and prints its figures."""
    job = Job(**json.loads(argv[2]))
    # Many epochs: a view of few records is read again and again.
    batches = iter(pipeline_of(argv[1], job).build(num_epochs=None))
    print(json.dumps(interleaved.measure(batches, job, time.process_time)))


if __name__ == "__main__":
    main(sys.argv)

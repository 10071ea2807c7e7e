"""Raw images to sharded TFRecords; every command line here is one module.

In: images and labels as they come. Out: shards, a catalog and an index.
Never here: TensorFlow, so that a worker starts in a fraction of a second.
"""

import os

# numpy's library of linear algebra starts threads at its import, and no converter needs
# them. A process with one thread forks its workers, which takes a hundredth of the time
# of new interpreters.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

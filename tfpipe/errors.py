"""The exceptions of tfpipe, as a tree.

    Exception
    └── TfpipeError         anything tfpipe itself finds wrong with data or pipeline
        ├── BadIndexError   index.json or catalog.parquet: missing, unreadable, or
        │                   not what the shards on disk are
        └── BadRecordError  a record whose frame, checksum or content is wrong

Wrong arguments raise ValueError or TypeError before any work starts. What TensorFlow
raises while a pipeline is built keeps its type and gains a note that names the stage.
"""


class TfpipeError(Exception):
    """Anything tfpipe itself finds wrong with the data or the pipeline."""


class BadIndexError(TfpipeError):
    """The index or the catalog is missing, unreadable, or contradicts the shards."""


class BadRecordError(TfpipeError):
    """A record's frame, checksum or content is wrong."""

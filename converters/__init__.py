"""Raw images to sharded TFRecords; every command line here is one module.

In: images and labels as they come. Out: shards, a catalog and an index.
Never here: TensorFlow, so that a worker starts in a fraction of a second.
"""

"""Raw images to sharded TFRecords; every command line here is one module."""

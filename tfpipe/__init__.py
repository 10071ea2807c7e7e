"""Feeds images from TFRecords to training: exact order, plain tf.data, measured.

    import tfpipe
    pipeline = tfpipe.imagenet_train("DIR", batch_size=256)
    print(pipeline)               # one line a stage
    dataset = pipeline.build()    # a plain tf.data.Dataset

`__init__.pyi` lists the public names. A name is imported when it is first used, so that
reading an index or encoding records (all that the converters do) needs no TensorFlow.
`renamed.py` lists the old names.
"""

from typing import Any

import lazy_loader

from tfpipe import renamed

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports a public name; an old name warns once."""
    if name not in renamed.RENAMED:
        return _public(name)
    return globals().setdefault(name, renamed.look_up(name))

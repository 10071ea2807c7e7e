"""Arrays of NumPy in files that may be damaged.

In: the content of a file of `numpy.save` or `numpy.savez`. Out: its arrays, or a
ValueError: NumPy and zipfile raise many exceptions for damaged bytes.
"""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def read(content: bytes) -> "dict[str, npt.NDArray[Any]]":
    """Returns the arrays of a file by their names; an array of `numpy.save` has "".

    Raises:
        ValueError: If the content is no such file, is damaged, or holds objects: a text
            of one line.
    """
    import numpy as np

    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except Exception as error:  # NumPy parses the header as a text of Python
        why = str(error).partition("\n")[0]
        raise ValueError(f"the file holds no arrays: {why}") from error

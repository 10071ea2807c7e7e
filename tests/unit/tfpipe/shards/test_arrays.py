"""tfpipe.shards.arrays: any bytes are arrays or an error of one line."""

import io

import numpy as np
import pytest

from tfpipe.shards import arrays


def test_arrays_have_their_names() -> None:
    one, several = io.BytesIO(), io.BytesIO()
    np.save(one, np.arange(3))
    np.savez(several, a=np.arange(2), b=np.zeros(1))

    assert arrays.read(one.getvalue())[""].tolist() == [0, 1, 2]
    found = arrays.read(several.getvalue())
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": [0, 1],
        "b": [0.0],
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a text",
        b"PK\3\4 no zip",
        b"\x93NUMPY\1\0v\0{'a': (",
        b"\x93NUMPY\1\0\xff\xff" + b"[" * 70_000,  # NumPy's error has three lines
    ],
)
def test_other_bytes_are_an_error_of_one_line(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^the file holds no arrays: [^\n]+\Z"):
        arrays.read(content)

"""JPEGs of unusual structure for the tests."""

import io

import PIL.Image


def many_scans(width: int, height: int, count: int) -> bytes:
    """Returns a progressive JPEG whose last scan is repeated `count` more times."""
    out = io.BytesIO()
    PIL.Image.new("RGB", (width, height)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + last * count + data[-2:]

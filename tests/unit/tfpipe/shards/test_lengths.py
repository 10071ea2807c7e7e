"""The headers of a shard tell whether an index states the right lengths."""

import pathlib

import numpy as np

from tfpipe.shards import records

DATA = [b"", b"a" * 5, b"b" * 300]


def _shard(path: pathlib.Path) -> tuple[str, np.ndarray, np.ndarray]:
    framed = [b"".join(records.frame([data])) for data in DATA]
    path.write_bytes(b"".join(framed))
    sizes = np.array([len(record) for record in framed], np.int64)
    return str(path), np.cumsum(sizes) - sizes, sizes


def test_right_lengths_are_told_from_wrong_ones(tmp_path: pathlib.Path) -> None:
    path, offsets, sizes = _shard(tmp_path / "shard")

    assert records.lengths_are_right(path, offsets, sizes)
    for part in (slice(0, 1), slice(1, 3), slice(2, 3)):
        assert records.lengths_are_right(path, offsets[part], sizes[part])
    for wrong in range(len(DATA)):
        changed = sizes.copy()
        changed[wrong] += 1
        assert not records.lengths_are_right(path, offsets, changed)


def test_a_shard_that_is_cut_short_has_wrong_lengths(tmp_path: pathlib.Path) -> None:
    path, offsets, sizes = _shard(tmp_path / "shard")
    content = pathlib.Path(path).read_bytes()
    # The last header is there, half there, or missing.
    for end, is_right in ((8, True), (7, False), (0, False)):
        pathlib.Path(path).write_bytes(content[: offsets[-1] + end])
        assert records.lengths_are_right(path, offsets, sizes) is is_right


def test_the_reader_reports_a_shard_that_cannot_be_opened() -> None:
    offsets, sizes = np.array([0]), np.array([16])

    assert records.lengths_are_right("/no/such/shard", offsets, sizes)
    assert records.lengths_are_right("s3://bucket/shard", offsets, sizes)

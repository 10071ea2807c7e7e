"""EpochWindows: all windows of an epoch as arrays, and what of them is missing."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.reading.order import EpochPosition
from tfpipe.reading.source import windows_of
from tfpipe.service import epoch_windows
from tfpipe.shards import index


def _source(data_dir: pathlib.Path, **fields: Any) -> tfpipe.TFRecordSource:
    fields = {"window_size": 8, "block_length": 3, "batch_size": 4} | fields
    return tfpipe.TFRecordSource(data_dir, fields.pop("split", "train"), **fields)


def _made(
    source: tfpipe.TFRecordSource, is_received: np.ndarray, place: EpochPosition
) -> list[dict[str, Any]]:
    epoch = epoch_windows.epoch_windows(windows_of(source), place)
    arrays = epoch.missing(is_received[: epoch.num_records])
    for name, spec in epoch_windows.ARRAYS.items():
        assert spec.shape.is_compatible_with(arrays[name].shape), name
    dataset = epoch_windows.dataset(
        {name: tf.constant(value) for name, value in arrays.items()},
        source.paths,
        is_shuffled=source.shuffle != "none",
        has_copies=source.sampling is not None,
    )
    return list(dataset.as_numpy_iterator())


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({}, 0),
        ({"shuffle": "none"}, 0),
        ({"rank": 1, "num_ranks": 2}, 4),
        ({"sampling": tfpipe.Sampling(record_weights=np.arange(24))}, 8),
        ({"subset": [0, 1, 2, 5, 8, 9, 15, 20, 23]}, 4),
    ],
)
def test_windows_are_those_of_the_source(
    data_dir: pathlib.Path, fields: dict[str, Any], start: int
) -> None:
    """From the middle of an epoch on, too."""
    if "subset" in fields:
        known = index.load(data_dir)
        view = tfpipe.Subset.of_records(known, "train", fields["subset"])
        fields = {"subset": view}
    source = _source(data_dir, **fields)
    state = source.advance(tfpipe.State(), start // 4)

    made = _made(source, np.zeros(24, bool), source.position(state))

    plain = list(source(state, 1).as_numpy_iterator())
    assert len(made) == len(plain) > 0
    for window, other in zip(made, plain, strict=True):
        for name in other.keys() - {"record_byte_offset", "record_num_bytes"}:
            assert np.array_equal(window[name], other[name]), name
    starts = [window["start"] for window in made]
    assert starts == list(np.cumsum([0, *(w["take"] for w in plain)])[:-1])


def test_only_missing_records_are_asked_for_again(data_dir: pathlib.Path) -> None:
    """A window of which the middle was received is asked for in two pieces."""
    is_received = np.zeros(24, bool)
    is_received[2:4] = is_received[8:20] = True

    made = _made(_source(data_dir), is_received, EpochPosition())

    pieces = [(w["start"], w["skip"], w["take"]) for w in made]
    assert pieces == [(0, 0, 2), (4, 4, 4), (20, 4, 4)]


def test_records_that_fill_up_follow_the_last_window(data_dir: pathlib.Path) -> None:
    """7 records in batches of 4: the window also gives the row that fills up."""
    source = _source(data_dir, split="validation", remainder="pad", shuffle="none")

    (window,) = _made(source, np.zeros(8, bool), EpochPosition())

    assert (window["take"], window["num_real"], window["is_real"]) == (8, 7, True)

"""Flipped bytes anywhere in a data set: each is named and costs one record."""

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.faults.damage import NUM_TRAIN, flip, places, read
from tests.support.faults.torture import rounds

NUM_FLIPS = rounds(few=6, many=200)


def test_any_flipped_byte_is_named_and_costs_one_record(copy_dir, record_property):
    all_places = places(copy_dir)
    random = np.random.default_rng(3)
    for number in random.integers(NUM_TRAIN, size=NUM_FLIPS).tolist():
        path, offset, size, name = all_places[number]
        position = offset + int(random.integers(size))
        flip(path, position)
        log = tfpipe.FaultLog(1)

        passed_on = read(copy_dir, log, seed=position)
        with pytest.raises(tf.errors.UnknownError) as caught:
            read(copy_dir, None, seed=position)

        expected = [n for n in range(NUM_TRAIN) if n != number]
        assert sorted(n for n, real in passed_on if real) == expected
        assert [(f.shard, f.byte_offset) for f in log.faults] == [(str(path), offset)]
        assert f"{path}: record {number} " in str(caught.value)
        assert f"at byte {offset} (image {name})" in str(caught.value)
        flip(path, position)
    record_property("injections", NUM_FLIPS)

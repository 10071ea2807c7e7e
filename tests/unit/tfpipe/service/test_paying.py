"""Whether a service would pay, and how many cores of other hosts it would need."""

import json
from typing import Any

import pytest

import tfpipe

# 125 images/s a core here, 112.5 a core elsewhere.
HERE = {"rate": 1000.0, "num_cores": 8}
BUSY, IDLE = {"cpu_seconds": 0.0079}, {"cpu_seconds": 0.005}


@pytest.mark.parametrize(
    ("more", "cores", "pays", "words"),
    [
        ({}, None, None, "1,000 images/s: a tfpipe.Service pays only if"),
        ({"demand": 1000.0}, 0, False, "step takes 1,000: a tfpipe.Service would not"),
        ({"demand": 99.9}, 0, False, "give 1,000 images/s, and the step takes 99.9:"),
        ({"demand": 1001.0}, 9, True, "with 9 cores of other hosts would close"),
        ({"demand": 2800.0} | BUSY, 25, True, "It costs 10% of the images/s a core."),
        (
            {"demand": 2800.0, "bytes_per_image": 150_528},
            *(25, True, "a core, and 0.42 GB/s of the network."),
        ),
        # More cores are no remedy for a storage, and none is needed for this demand.
        ({"demand": 1001.0} | IDLE, None, None, "only 62% of the time of these cores"),
        ({"demand": 1000.0} | IDLE, 0, False, "would not pay."),
        (
            {"demand": 1001.0, "num_cores": 1},
            2,
            True,
            "1 core at 1,000 images/s a core",
        ),
        ({"unit": "batches"}, None, None, "8 cores at 125 batches/s a core give 1,000"),
    ],
)
def test_what_the_cores_give_is_compared_with_the_demand(
    more: dict[str, Any], cores: int | None, pays: bool | None, words: str
) -> None:
    found = tfpipe.ServicePayoff(**HERE | more)

    assert (found.cores_elsewhere, found.pays) == (cores, pays)
    assert words in found.sentence
    told = found.as_json()
    assert (told["cores_elsewhere"], told["pays"]) == (cores, pays)
    assert json.loads(json.dumps(told, allow_nan=False))["sentence"] == found.sentence

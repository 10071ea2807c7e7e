"""A store that fails is an error of the run, and never damage of a record.

Each answer meets reading by the native op and by TensorFlow, with on_error="skip". In
`make test` a few meet each other.
"""

import itertools
import pathlib
from typing import Any

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.faults.torture import IS_LONG
from tests.system.tfpipe.location.test_source import digest, make, upload

ANSWERS: dict[str, dict[str, Any]] = {
    **{
        str(status): {"kind": "status", "status": status}
        for status in (400, 401, 403, 404, 408, 416, 429, 500, 502, 503, 504)
    },
    "ExpiredToken": {"kind": "status", "status": 400, "code": "ExpiredToken"},
    "RequestTimeout": {"kind": "status", "status": 400, "code": "RequestTimeout"},
    "redirect": {"kind": "redirect", "status": 307, "location": "http://127.0.0.1:1"},
    "reset": {"kind": "reset"},
    "truncate": {"kind": "truncate", "after": 100},
    "stall": {"kind": "stall", "after": 100},
    "delay": {"kind": "delay", "seconds": 30.0},
}
WAYS = ("native", "tensorflow")
# In `make test` answers and ways take turns.
FEW = [
    *zip(("403", "404", "503", "reset", "stall"), itertools.cycle(WAYS), strict=False)
]


@needs_native
@pytest.mark.parametrize(
    ("answer", "reading"), [*itertools.product(ANSWERS, WAYS)] if IS_LONG else FEW
)
def test_no_answer_of_a_store_is_a_fault(
    answer: str,
    reading: str,
    data_dir: pathlib.Path,
    s3_folder: str,
    bad_proxy: BadProxy,
    tmp_path: pathlib.Path,
) -> None:
    upload(data_dir, s3_folder)
    cache = tfpipe.ShardCache(tmp_path, time_limit=1.0)
    options = {"reading": reading, "on_error": "skip", "max_faults": 1000}
    pipeline = make(s3_folder, shard_cache=cache, **options)
    bad_proxy.faults.append(Fault(names="*train-*", **ANSWERS[answer]))

    with pytest.raises(tf.errors.OpError, match=f"{s3_folder}/train-"):
        digest(pipeline.build(epoch=1))

    assert bad_proxy.num_requests("*train-*") > 0
    assert pipeline.faults is not None
    assert pipeline.faults.faults == []
    bad_proxy.faults.clear()
    again = make(s3_folder, shard_cache=cache, **options)
    expected = make(data_dir, **options)
    assert digest(again.build(epoch=1)) == digest(expected.build(epoch=1))

"""tfpipe.native.fuzz: broken images through the C++ code, under sanitizers."""

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tfpipe.native import fuzz


@needs_native
def test_broken_images_do_no_harm_under_sanitizers():
    result = fuzz.fuzz(5000, seed=1)

    assert result["num_images"] == 5000
    assert 500 < result["num_refused"] < 4500
    assert result["num_rewritten"] > 100
    assert result["num_turned"] > 100
    assert result["num_varied"] > 100
    assert result["num_entered"] > 100
    assert result["num_parsed"] > 100

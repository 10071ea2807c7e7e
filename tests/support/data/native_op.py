"""The native crop op for the tests: as it is built, or built for the session."""

import os
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tfpipe.native import build, libraries, op, selection
from tfpipe.ops.crop import crop_image

needs_native = pytest.mark.usefixtures("native_op")
on_both_ops = pytest.mark.usefixtures("each_crop_op")


@pytest.fixture(scope="session")
def native_op(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes the op be there; skips the test where there is no compiler."""
    before = dict(os.environ)
    if op.load()[0] is None or not libraries.rewrite_library().exists():
        try:
            libraries.find_compiler()
        except OSError as error:
            pytest.skip(str(error))
        # Shared by the workers of a session.
        folder = tmp_path_factory.getbasetemp().parent / "native"
        os.environ["TFPIPE_NATIVE_DIR"] = str(folder)
        build.build(force=False)
    module, reason = op.load()
    assert module is not None, reason
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(params=["stock", "native"])
def each_crop_op(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs a test with either op, whichever the crops in it were made for."""
    if request.param == "native":
        request.getfixturevalue("native_op")
    monkeypatch.setattr(selection, "resolve", lambda _: request.param)


def crop_both(jpeg, window, size, *, flip=None, **options):
    """The pixels of a window by the native op and by the stock ones."""
    return tuple(
        crop_image(
            tf.constant(jpeg),
            tf.constant(window),
            size,
            flip=None if flip is None else tf.constant(flip),
            crop_op=crop_op,
            **options,
        ).numpy()
        for crop_op in ("native", "stock")
    )

import dataclasses
import fcntl
import functools
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import crop_both, native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.ops.test_crop import CROP_BOXES, KINDS, gradient
from tfpipe.native import __main__ as command, build, libraries, op
from tfpipe.ops.crop import crop_image

CROP_BOX = (3, 5, 50, 60)
LARGE = gradient(size=(301, 403))


def photograph(size=(240, 320), **options):
    """A JPEG with edges and grain, so that blocks are full."""
    out = io.BytesIO()
    _scene(size).save(out, "JPEG", **options)
    return out.getvalue()


@functools.cache
def _scene(size):
    random = np.random.default_rng(5)
    y, x = np.mgrid[: size[0], : size[1]]
    waves = 127 + 120 * np.sin(x * y / 900)[..., np.newaxis] * [1, 0.6, -0.9]
    pixels = (waves + random.normal(0, 9, (*size, 3))).clip(0, 255).astype(np.uint8)
    return PIL.Image.fromarray(pixels)


def random_crop_boxes(size, count):
    random = np.random.default_rng(1)
    for _ in range(count):
        height, width = (int(random.integers(1, side + 1)) for side in size)
        top, left = (
            int(random.integers(0, whole - part + 1))
            for whole, part in zip(size, (height, width), strict=True)
        )
        yield top, left, height, width


# Each kind of image meets each format, each crop box three of them.
FORMATS = [
    (5, False, "uint8"),
    ((4, 23), True, "uint8"),
    (16, True, "uint8"),
    ((20, 3), False, "float32"),
    (5, True, "float32"),
    (16, False, "float32"),
    (16, True, "bfloat16"),
    (5, False, "bfloat16"),
]


@needs_native
@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("kind", KINDS)
def test_pixels_equal_the_stock_ones(kind, quality):
    formats = itertools.cycle(FORMATS)
    for crop_box in CROP_BOXES:
        for size, flip, dtype in itertools.islice(formats, 3):
            one, other = crop_both(
                KINDS[kind], crop_box, size, flip=flip, dtype=dtype, quality=quality
            )
            np.testing.assert_array_equal(one, other)


@needs_native
@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize(
    "options",
    [
        {"quality": 100, "subsampling": 0},
        {"quality": 60, "subsampling": 2},
        {"optimize": True, "subsampling": 1},
        {"restart_marker_rows": 1, "subsampling": 2},
        {"restart_marker_blocks": 3, "subsampling": 0},
        {"progressive": True},
    ],
    ids=str,
)
def test_pixels_of_a_photograph_equal_the_stock_ones(options, quality):
    jpeg = photograph(**options)
    for crop_box in random_crop_boxes((240, 320), 5):
        one, other = crop_both(jpeg, crop_box, 24, flip=True, quality=quality)

        np.testing.assert_array_equal(one, other)


TORCH, CAFFE = tfpipe.Normalize(), tfpipe.Normalize.caffe()


# Every two choices together.
@needs_native
@pytest.mark.parametrize(
    ("kind", "layout", "normalize", "dtype"),
    [
        ("4:2:0", "NHWC", TORCH, "float32"),
        ("4:2:0", "NCHW", CAFFE, "bfloat16"),
        ("gray", "NHWC", CAFFE, "float32"),
        ("gray", "NCHW", TORCH, "bfloat16"),
        ("cmyk", "NHWC", TORCH, "bfloat16"),
        ("cmyk", "NCHW", CAFFE, "float32"),
    ],
)
def test_normalized_pixels_equal_the_stock_ones(kind, layout, normalize, dtype):
    one, other = crop_both(
        KINDS[kind],
        CROP_BOX,
        (20, 13),
        flip=True,
        normalize=normalize,
        layout=layout,
        dtype=dtype,
    )

    assert one.shape == ((20, 13, 3) if layout == "NHWC" else (3, 20, 13))
    assert np.std(np.asarray(one, np.float32)) > 0.1
    np.testing.assert_array_equal(one, other)


@needs_native
def test_threads_give_the_same_pixels():
    expected = crop_image(LARGE, tf.constant((9, 4, 200, 300)), 64, crop_op="native")
    results = []

    def work():
        for crop_box in [(9, 4, 200, 300), (0, 0, 17, 400)] * 8:
            image = crop_image(LARGE, tf.constant(crop_box), 64, crop_op="native")
            results.append((crop_box, image.numpy()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    images = [image for crop_box, image in results if crop_box == (9, 4, 200, 300)]
    assert len(images) == 32
    assert all(np.array_equal(image, expected) for image in images)


@needs_native
@pytest.mark.parametrize("op", [tfpipe.RandomCrop, tfpipe.RandomScaleCrop])
def test_the_same_seed_gives_the_same_crop(op):
    jpeg = photograph()
    for number in range(8):
        example = {
            "encoded": tf.constant(jpeg),
            "height": tf.constant(240),
            "width": tf.constant(320),
            "seed": tf.constant([1, number], tf.int64),
        }
        options = {"image_size": 24, "flip": True}
        if op is tfpipe.RandomScaleCrop:
            options["short_side"] = (24, 60)

        one, other = (
            op(**options, crop_op=name)(example)["image"]
            for name in ("native", "stock")
        )

        np.testing.assert_array_equal(one, other)


def broken():
    """Bytes, crop box and a part of the message."""
    good, whole = KINDS["4:2:0"], (0, 0, 61, 69)
    huge = bytearray(good)
    at = huge.index(b"\xff\xc0") + 5
    huge[at : at + 4] = b"\xff\xdc\xff\xdc"
    twelve = bytearray(good)
    twelve[at - 1] = 12
    empty = bytearray(good)
    empty[at : at + 2] = b"\0\0"
    return {
        "no bytes": (b"", whole, "JPEG data are bad"),
        "no image": (b"no image", whole, "JPEG data are bad: Not a JPEG file"),
        "header only": (good[:100], whole, "JPEG data are bad: .*end of"),
        "half": (good[: len(good) * 2 // 3], whole, "JPEG data are bad: .*end of"),
        "huge": (bytes(huge), whole, r"less than 2\^29 values, got 65500 x 65500 x 3"),
        "no height": (bytes(empty), whole, "JPEG data are bad: Empty"),
        "12 bits": (bytes(twelve), whole, "JPEG data must have 8 bits a value, got 12"),
        "too low": (
            good,
            (1, 0, 61, 69),
            "crop box must be within .* 61 x 69 .* top 1",
        ),
        "too wide": (good, (0, 0, 61, 70), "crop box must be within .* width 70"),
        "no rows": (good, (0, 0, 0, 69), "crop box must be within .* height 0"),
        "negative": (good, (-1, 0, 9, 9), "crop box must be within .* top -1"),
        "overflow": (good, (2**31 - 1, 0, 2**31 - 1, 9), "crop box must be within"),
    }


@needs_native
@pytest.mark.parametrize(
    ("jpeg", "crop_box", "message"), broken().values(), ids=broken()
)
@pytest.mark.parametrize("quality", ["fast", "exact"])
def test_the_error_says_what_is_wrong(jpeg, crop_box, message, quality, capfd):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        crop_image(jpeg, tf.constant(crop_box), 16, quality=quality, crop_op="native")
    assert capfd.readouterr().err == ""


@needs_native
@pytest.mark.parametrize(
    "options", [{}, {"restart_marker_rows": 1}, {"restart_marker_blocks": 3}], ids=str
)
def test_damaged_images_are_treated_as_by_the_stock_op(options):
    """Both ops refuse an image, or both make the same pixels of it."""
    jpeg = photograph((64, 80), subsampling=2, **options)
    random = np.random.default_rng(2)
    refused = 0
    for _ in range(60):
        damaged = bytearray(jpeg)
        for at in random.integers(600, len(jpeg), 2):
            damaged[at] = random.integers(0, 256)
        if random.random() < 0.3:
            damaged = damaged[: random.integers(600, len(jpeg))]
        outcomes = []
        for name in ("native", "stock"):
            try:
                outcomes.append(
                    crop_image(
                        bytes(damaged),
                        tf.constant((5, 9, 59, 60)),
                        59,
                        quality="exact",
                        crop_op=name,
                    ).numpy()
                )
            except tf.errors.InvalidArgumentError:
                outcomes.append(None)
        one, other = outcomes
        assert (one is None) == (other is None)
        refused += one is None
        np.testing.assert_array_equal(one, other)
    assert 4 < refused < 56


@needs_native
@pytest.mark.parametrize(
    ("jpeg", "crop_box"),
    [([KINDS["gray"]] * 2, CROP_BOX), (KINDS["gray"], CROP_BOX[:3])],
)
def test_wrong_shapes_are_refused(jpeg, crop_box):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"window .* \[4\], got"):
        crop_image(jpeg, tf.constant(crop_box), 16, crop_op="native")


@needs_native
def test_the_printed_pipeline_says_which_op_runs(data_dir):
    for crop_op in ("native", "stock"):
        pipeline = tfpipe.imagenet_train(
            data_dir, image_size=16, batch_size=4, crop_op=crop_op
        )
        assert f"crop_op='{crop_op}'" in str(pipeline)
        evaluate = tfpipe.imagenet_eval(data_dir, image_size=16, crop_op=crop_op)
        assert f"crop_op='{crop_op}'" in str(evaluate)


@needs_native
@pytest.mark.parametrize(
    ("preset", "dtype"),
    [
        (tfpipe.imagenet_train, "bfloat16"),
        (tfpipe.imagenet_eval, "float16"),
    ],
)
def test_batches_of_a_preset_are_the_same(preset, dtype, data_dir):
    one, other = (
        next(
            preset(data_dir, image_size=16, batch_size=6, dtype=dtype, crop_op=crop_op)
            .build()
            .as_numpy_iterator()
        )
        for crop_op in ("native", "stock")
    )

    assert one["image"].dtype == tf.dtypes.as_dtype(dtype).as_numpy_dtype
    np.testing.assert_array_equal(one["image"], other["image"])
    np.testing.assert_array_equal(one["label"], other["label"])


@needs_native
def test_auto_is_native_where_it_is_built():
    assert tfpipe.CenterCrop(image_size=8).crop_op == "native"
    assert tfpipe.CenterCrop(image_size=8, crop_op="stock").crop_op == "stock"


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match="crop_op must be one of auto, native, stock"):
        tfpipe.Resize(image_size=8, crop_op="fast")


def _install(path, library, described):
    """A library as a build leaves it, with a JSON file that describes one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(library)
    path.with_suffix(".json").write_text(
        json.dumps({"compiler": "c++", **libraries.describe(described)})
    )


def test_a_library_that_does_not_load_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    _install(op.library(), b"of another ABI", b"of another ABI")

    module, reason = op.load()

    assert module is None
    assert "does not load" in reason


DAMAGES = {
    "empty": lambda library: b"",
    "cut": lambda library: library[: len(library) // 3],
    "changed": lambda library: library[:5000] + b"x" + library[5001:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_a_reason(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    library = bytes(9000)
    _install(op.library(), DAMAGES[damage](library), library)

    module, reason = op.load()

    assert module is None
    assert f"{op.library()} is damaged" in reason
    words = r"is damaged.* Run: \S*python\S* -m tfpipe.native"
    with pytest.raises(RuntimeError, match=words):
        tfpipe.Resize(image_size=8, crop_op="native")


def test_a_library_that_nothing_describes_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    op.library().write_bytes(b"anything")
    for text in ("", '{"compiler": "c++"}', "[]"):
        op.library().with_suffix(".json").write_text(text)
        assert "cannot be checked" in op.load()[1]


FAILURES = {
    build.CompilerError("c++ failed:\na long list"): "since the C++ compiler failed.",
    OSError("no C++ compiler: install one"): "since no C++ compiler: install one.",
}


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_a_build_that_fails_is_tried_and_said_once(
    failure, tmp_path, monkeypatch, capsys
):
    tried = []

    def fail(*, force):
        tried.append(force)
        raise failure

    monkeypatch.setattr(build, "build_op", fail)
    monkeypatch.setenv("TFPIPE_NATIVE_BUILD", "1")
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "new"))

    assert [tfpipe.Resize(image_size=8).crop_op for _ in range(2)] == ["stock"] * 2

    said = capsys.readouterr().err
    assert tried == [False]
    assert said.count("stock ops decode and crop") == 1
    assert FAILURES[failure] in said
    assert "a long list" not in said
    with pytest.raises(RuntimeError, match=r"Run: python -m tfpipe\.native"):
        tfpipe.Resize(image_size=8, crop_op="native")


def test_a_folder_that_cannot_be_used_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TFPIPE_NATIVE_BUILD", "1")
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "file/folder"))

    assert tfpipe.Resize(image_size=8).crop_op == "stock"

    reason = f"since {tmp_path}/file/folder cannot be used: Not a directory."
    assert reason in capsys.readouterr().err


def test_nothing_is_built_where_the_environment_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "build_op", lambda force: pytest.fail("was built"))
    monkeypatch.setenv("TFPIPE_NATIVE_BUILD", "0")
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))

    assert tfpipe.Resize(image_size=8).crop_op == "stock"
    assert not any(tmp_path.iterdir())


def test_the_command_does_not_recommend_itself(tmp_path, monkeypatch, capsys):
    """A library that was built on another host does not load; it needs --force."""
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    monkeypatch.setattr(command, "build", lambda force: op.library())
    monkeypatch.setattr(sys, "argv", ["native"])
    _install(op.library(), b"of another ABI", b"of another ABI")

    assert command.main() == 1

    assert "does not load" in (error := capsys.readouterr().err)
    assert error.endswith("Run: python -m tfpipe.native --force\n")


@pytest.fixture
def failing_compiler(monkeypatch):
    """A compiler that cannot be run, named by CXX."""

    def run(command, **options):
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(build.subprocess, "run", run)
    monkeypatch.setenv("CXX", "/no/such/compiler")


@pytest.mark.usefixtures("failing_compiler")
def test_a_compiler_that_cannot_be_run_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "new"))

    with pytest.raises(OSError, match=r"no C\+\+ compiler: /no/such/compiler"):
        build.build(force=False)


def test_a_compiler_without_a_version_is_named(monkeypatch):
    def run(command, **options):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(build.subprocess, "run", run)

    with pytest.raises(OSError, match=r"no C\+\+ compiler: false"):
        build._version(["false"])


def test_no_compiler_anywhere(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    with pytest.raises(OSError, match=r"no C\+\+ compiler: install one"):
        libraries.find_compiler()


def test_no_libjpeg_or_another_platform_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(
        libraries.PIL, "__file__", str(tmp_path / "PIL" / "__init__.py")
    )
    assert "Pillow's wheel from PyPI has it" in op.load()[1]
    monkeypatch.setattr(libraries.sys, "platform", "darwin")
    assert op.load() == (None, "the native op is for Linux, this is darwin")


@needs_native
def test_a_folder_that_cannot_be_written_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(build, "_version", lambda compiler: "c++ 12")
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path / "file" / "folder"))

    with pytest.raises(OSError, match="folder"):
        build.build(force=False)


@pytest.mark.usefixtures("failing_compiler")
def test_the_command_says_why_it_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["native"])

    assert command.main() == 1

    assert "Error: no C++ compiler: /no/such/compiler" in capsys.readouterr().err


def test_help_teaches(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["native", "--help"])

    with pytest.raises(SystemExit, match="0"):
        command.main()

    shown = capsys.readouterr().out
    assert "TFPIPE_NATIVE_DIR" in shown
    assert "--fuzz" in shown


@needs_native
def test_ops_keep_their_choice_when_they_are_changed():
    op = tfpipe.RandomCrop(image_size=8, crop_op="stock")

    assert dataclasses.replace(op, flip=True).crop_op == "stock"


def test_sources_are_in_the_package():
    folder = pathlib.Path(libraries.__file__).parent / "src"

    sources = libraries.SOURCES + libraries.REWRITE_SOURCES
    assert {path.name for path in sources} <= {p.name for p in folder.iterdir()}


def test_what_a_killed_compilation_left_is_cleared(tmp_path):
    held, left, young = (tmp_path / f"building-{n}" for n in "abc")
    for folder in (held, left, young):
        folder.mkdir()
        (folder / "lock").touch()
    for folder in (held, left):
        os.utime(folder, (0, 0))
    with open(held / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build._clear(tmp_path)

    assert sorted(tmp_path.iterdir()) == [held, young]

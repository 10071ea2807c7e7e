"""benchmarks.studies.loaders: the same images through other loaders, and what it says of them."""

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from benchmarks.studies import interleaved
from benchmarks.studies.loaders import (
    __main__,
    data,
    images as images_loaders,
    run as run_loaders,
)
from benchmarks.studies.loaders.images import Job
from benchmarks.studies.loaders.peers import PEERS
from tests.support.data import SYNSETS, convert

# The color of each class: a crop of an image tells its label, which starts at 1.
COLORS = np.array([(220, 30, 30), (30, 200, 30), (40, 40, 220), (240, 240, 230)])
NUM_IMAGES = 24
IMAGE_SIZE = 32

TENSORFLOW_PEERS = ["tfpipe", "garden"]
OTHER_PEERS = [name for name in PEERS if name not in TENSORFLOW_PEERS]


@pytest.fixture(scope="module")
def color_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Records of images of one color each, in three shards."""
    raw = tmp_path_factory.mktemp("colors")
    for number in range(NUM_IMAGES):
        label = number % len(SYNSETS)
        image = PIL.Image.new("RGB", (48 + number % 5, 40), tuple(COLORS[label]))
        path = raw / "train" / SYNSETS[label] / f"{SYNSETS[label]}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=95)
    folder = raw / "records"
    convert(raw, folder, num_train_shards=3)
    return folder


@pytest.fixture(scope="module")
def peer_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("copies")


def make_job(color_dir: pathlib.Path, peer_dir: pathlib.Path, **fields: Any) -> Job:
    return Job(
        data_dir=str(color_dir),
        peer_dir=str(peer_dir),
        image_size=IMAGE_SIZE,
        batch_size=4,
        num_workers=2,
        **{"num_warmup_images": 4, "num_timed_images": 8, **fields},
    )


def check_batches(name: str, job: Job) -> None:
    """Shape, dtype and range of some batches, and that each label is its color's."""
    batches: Iterator[Any] = PEERS[name].load(job)
    # Records count from 1; tfpipe's labels from 0.
    base = 0 if name.startswith("tfpipe") else 1
    seen = []
    for _ in range(2 * NUM_IMAGES // job.batch_size):
        images, labels = (np.array(part) for part in next(batches))
        assert images.shape == (job.batch_size, job.image_size, job.image_size, 3)
        assert images.dtype == job.dtype
        assert nearest_color(images, job.dtype) == (labels - base).tolist()
        seen += (labels - base).tolist()
    batches.close()
    assert set(seen) == {0, 1, 2, 3}
    assert seen[:NUM_IMAGES] != seen[NUM_IMAGES:], "shuffled anew each epoch"


def main(argv: list[str]) -> None:
    """Checks one peer, alone in its process."""
    check_batches(argv[1], Job(**json.loads(argv[2])))


def nearest_color(images: npt.NDArray[Any], dtype: str) -> list[int]:
    means = images.mean(axis=(1, 2), dtype=np.float64)
    if dtype == "float32":
        means = means * images_loaders.STD + images_loaders.MEAN
    distances = np.abs(means[:, np.newaxis] - COLORS).max(axis=2)
    assert distances.min(axis=1).max() < 8
    return list(distances.argmin(axis=1))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", TENSORFLOW_PEERS)
def test_tensorflow_peers_deliver(
    name: str, dtype: str, color_dir: pathlib.Path
) -> None:
    check_batches(name, make_job(color_dir, pathlib.Path(), dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", OTHER_PEERS)
def test_installed_peers_deliver(
    name: str, dtype: str, color_dir: pathlib.Path, peer_dir: pathlib.Path
) -> None:
    """Each in a process of its own: they do not all go together in one."""
    if reason := __main__.missing(name):
        pytest.skip(reason)
    job = make_job(color_dir, peer_dir, dtype=dtype)
    if PEERS[name].data:
        data.make(PEERS[name].data, job)
    code = "import sys; from tests.unit.benchmarks.studies.loaders import test_peers_command; test_peers.main(sys.argv)"
    done = subprocess.run(
        [sys.executable, "-c", code, name, json.dumps(vars(job))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if name == "tfpipe_native" and "python -m tfpipe.native" in done.stderr:
        pytest.skip("the native op is not built")
    assert not done.returncode, done.stderr


def test_copies_are_the_bytes_of_the_records(
    color_dir: pathlib.Path, peer_dir: pathlib.Path
) -> None:
    job = make_job(color_dir, peer_dir)

    data.make("jpeg", job)
    tars = sorted(data.make("tar", job).glob("*.tar"))

    raw = sorted(p.read_bytes() for p in color_dir.parent.glob("train/*/*.JPEG"))
    items = data.files(job.peer_dir)
    assert sorted(pathlib.Path(path).read_bytes() for path, _ in items) == raw
    assert sorted(label for _, label in items) == sorted([1, 2, 3, 4] * 6)
    assert len(tars) == 3
    assert sorted(member for tar in tars for member in members(tar, ".jpg")) == raw
    labels = [int(member) for tar in tars for member in members(tar, ".cls")]
    assert sorted(labels) == sorted([1, 2, 3, 4] * 6)


def test_indexes_for_dali_are_beside_the_shards(
    color_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    indexes = list(map(pathlib.Path, data.dali_indexes(str(color_dir))))

    assert [path.parent.name for path in indexes] == ["dali_idx"] * 3
    assert [path.read_text().count("\n") for path in indexes] == [8, 8, 8]
    (tmp_path / "index.json").write_bytes((color_dir / "index.json").read_bytes())
    with pytest.raises(FileNotFoundError, match="train-00000-of-00003 is missing"):
        data.dali_indexes(str(tmp_path))


def members(path: pathlib.Path, ending: str) -> list[bytes]:
    with tarfile.open(path) as tar:
        files = [tar.extractfile(entry) for entry in tar if entry.name.endswith(ending)]
        return [file.read() for file in files if file]


def test_copies_are_kept_and_not_mixed(
    color_dir: pathlib.Path, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    job = make_job(color_dir, tmp_path)
    folder = data.make("jpeg", job)
    path, _ = data.files(job.peer_dir)[0]
    pathlib.Path(path).write_bytes(b"kept")

    assert data.make("jpeg", job) == folder
    assert pathlib.Path(path).read_bytes() == b"kept"
    with pytest.raises(ValueError, match="those of other shards"):
        data.make("tar", make_job(data_dir, tmp_path))


@pytest.mark.parametrize(
    ("height", "width", "draws", "expected"),
    [
        # 0.54 of the area, ratio 1, in the middle.
        (100, 100, [0.5] * 4, (14, 14, 73, 73)),
        # The whole area, ratio 4/3, and then 0.08 of it, ratio 3/4, in a corner.
        (100, 100, [1, 1, 0, 0, 0, 0], (0, 0, 33, 24)),
        # None of ten fits: the middle, within the ratios.
        (400, 100, [1, 0.5] * 10, (133, 0, 133, 100)),
        (100, 400, [1, 0.5] * 10, (0, 133, 100, 133)),
        (100, 120, [1, 0] * 10, (0, 0, 100, 120)),
    ],
)
def test_window_is_that_of_the_draws(
    height: int, width: int, draws: list[float], expected: tuple[int, ...]
) -> None:
    assert images_loaders.crop_box(height, width, iter(draws).__next__) == expected


def test_windows_lie_within_the_image() -> None:
    draw = np.random.default_rng(0).random
    shares = []
    for _ in range(2000):
        top, left, rows, columns = images_loaders.crop_box(60, 90, draw)
        assert 0 <= top <= 60 - rows
        assert 0 <= left <= 90 - columns
        shares.append(rows * columns / (60 * 90))
    assert 0.07 < min(shares) < 0.1
    assert max(shares) > 0.85


def test_pillow_loads_what_is_drawn() -> None:
    """Normalized is the uint8 image minus mean over std; flips follow the draw."""
    job = Job(data_dir="", image_size=8)
    encoded = _gradient()

    plain = images_loaders.load_pillow(encoded, job, iter([0.5] * 5).__next__)
    flipped = images_loaders.load_pillow(encoded, job, iter([0.5] * 4 + [0.0]).__next__)
    normal = images_loaders.load_pillow(
        encoded,
        Job(data_dir="", image_size=8, dtype="float32"),
        iter([0.5] * 5).__next__,
    )

    assert plain.dtype == np.uint8
    assert np.array_equal(flipped, plain[:, ::-1])
    assert plain[:, 0].mean() < plain[:, -1].mean()
    expected = (plain - np.array(images_loaders.MEAN)) / images_loaders.STD
    assert np.allclose(normal, expected, atol=1e-5)


def _gradient() -> bytes:
    row = np.linspace(0, 255, 64, dtype=np.uint8)
    pixels = np.broadcast_to(row[np.newaxis, :, np.newaxis], (64, 64, 3))
    out = io.BytesIO()
    PIL.Image.fromarray(np.ascontiguousarray(pixels)).save(out, "JPEG", quality=95)
    return out.getvalue()


def test_cpu_time_counts_what_a_run_starts() -> None:
    """A child that is running, and one that has ended."""
    busy = "import time\nwhile time.process_time() < 0.2: pass\n"
    before = run_loaders.tree_cpu_seconds()
    subprocess.run([sys.executable, "-c", busy], check=True)
    ended = run_loaders.tree_cpu_seconds()
    waiting = busy + "print(flush=True)\nimport sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = run_loaders.tree_cpu_seconds()
        child.communicate()

    # Counted in ticks of 10 ms, apart for each mode of each process.
    assert ended - before > 0.15
    assert running - ended > 0.15


def test_figures_are_of_rounds() -> None:
    def run(cpu_seconds: float, seconds: float) -> interleaved.Run:
        return {"cpu_seconds": cpu_seconds, "seconds": seconds, "num_images": 500}

    base = [run(1, 1), run(2, 2), run(1.5, 1)]
    figures = interleaved.figures([run(2, 1), run(2, 1), run(6, 2)], base)

    assert figures["cpu_seconds_per_1000_images"] == 4
    assert figures["cpu_seconds_per_1000_images_max"] == 12
    assert figures["cpu_ratio"] == 2
    assert (figures["cpu_ratio_min"], figures["cpu_ratio_max"]) == (1, 4)
    assert figures["images_per_second"] == 500
    assert figures["images_per_second_min"] == 250


def test_table_has_the_cheapest_first_and_the_reasons() -> None:
    base = [{"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 1000}]
    dear = [{"cpu_seconds": 2.0, "seconds": 4.0, "num_images": 1000}]
    figures = {
        "garden": interleaved.figures(dear, base),
        "tfpipe": interleaved.figures(base, base),
    }

    text = __main__.table({"uint8": figures}, {"ffcv": "it is not installed"})

    lines = text.splitlines()
    assert lines[0].startswith("peer, uint8")
    assert lines[1].split() == ["tfpipe", *["1.000", "(1.000-1.000)"] * 2, "1000"]
    assert lines[2].split()[:4] == ["garden", "2.000", "(2.000-2.000)", "2.000"]
    assert lines[-1] == "ffcv was skipped: it is not installed"


def test_peers_are_chosen_in_their_order() -> None:
    assert __main__.chosen(["grain_cv", "garden"]) == ["tfpipe", "garden", "grain_cv"]
    assert __main__.chosen([]) == ["tfpipe"]
    with pytest.raises(
        ValueError, match=r"--peers must be of tfpipe, .*; got nonsense"
    ):
        __main__.chosen(["nonsense"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "float16"}, "dtype must be uint8 or float32, got 'float16'"),
        ({"num_workers": 0}, "num_workers must be >= 1, got 0"),
        ({"num_timed_images": 0}, "num_timed_images must be >= 1"),
    ],
)
def test_job_checks_its_values(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job(data_dir="", **fields)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "_is_installed", lambda module: module == "torch")

    assert __main__.missing("tfpipe") is None
    assert __main__.missing("torch_pil") is None
    assert __main__.missing("torch_cv") == (
        "not installed: simplejpeg, cv2 (pip install simplejpeg opencv-python-headless)"
    )
    assert __main__.missing("dali") == (
        "not installed: nvidia.dali (pip install nvidia-dali-cuda120)"
    )


def test_installed_is_what_can_be_found() -> None:
    assert __main__._is_installed("numpy")
    assert not __main__._is_installed("no_such_package.at_all")


def test_a_run_that_fails_or_hangs_says_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "stub.py").write_text(
        "import sys, time\n"
        "if sys.argv[1] == 'hang': time.sleep(60)\n"
        "raise ValueError('no such thing')\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
        job = Job(data_dir="")

        with pytest.raises(OSError, match=r"(?s)fail ended with 1.*no such thing"):
            interleaved.run("stub", "fail", job, time_limit=30)
        with pytest.raises(OSError, match="hang took longer than 1 s"):
            interleaved.run("stub", "hang", job, time_limit=1)


def test_a_peer_that_fails_is_skipped_and_tfpipe_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = {"garden"}

    def run(
        module: str, name: str, job: Job, *, time_limit: float | None
    ) -> interleaved.Run:
        if name in failing:
            raise OSError(f"{name} ended with 1: Traceback\nValueError: too bad")
        return {"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 100}

    monkeypatch.setattr(interleaved, "run", run)
    monkeypatch.setattr(__main__, "_is_installed", lambda module: module != "ffcv")
    jobs = [Job(data_dir="", dtype=dtype) for dtype in ("uint8", "float32")]

    figures, skipped = __main__.compare(
        jobs, ["tfpipe", "garden", "ffcv", "grain_cv"], 2
    )

    assert {dtype: list(rows) for dtype, rows in figures.items()} == {
        "uint8": ["tfpipe", "grain_cv"],
        "float32": ["tfpipe", "grain_cv"],
    }
    assert skipped == {
        "garden": "its run failed: ValueError: too bad",
        "ffcv": "not installed: ffcv (pip install ffcv)",
    }
    failing = {"tfpipe"}
    with pytest.raises(OSError, match="too bad"):
        __main__.compare(jobs, ["tfpipe"], 1)


def test_without_a_folder_for_copies_their_readers_are_skipped(
    color_dir: pathlib.Path,
) -> None:
    job = Job(data_dir=str(color_dir))

    reasons = __main__.without_data(["tfpipe", "torch_pil", "torch_cv"], job)

    assert reasons == dict.fromkeys(
        ["torch_pil", "torch_cv"],
        "its data cannot be made: ValueError: --peer_dir must name a folder for copies "
        "of the images.",
    )


@pytest.mark.slow
def test_command_measures(color_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    result = tmp_path / "result.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.studies.loaders",
        f"--data_dir={color_dir}",
    ]
    flags = ["--peers=garden,ffcv", "--num_rounds=1", "--num_timed_images=2000"]
    flags += ["--image_size=32", "--batch_size=4", "--dtype=uint8"]

    done = subprocess.run(
        [*command, *flags, f"--peers_result={result}"],
        capture_output=True,
        text=True,
        check=True,
    )

    report = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(result.read_text()) == report
    assert list(report["peers"]["uint8"]) == ["tfpipe", "garden"]
    assert list(report["skipped"]) == ["ffcv"]
    assert report["config"]["data_dir"] == "records"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data_dir": "none", "peers": ["nonsense"]}, "got nonsense"),
        ({"data_dir": "none", "dtype": ["float16"]}, "dtype must be uint8 or float32"),
        ({}, "One of --data_dir and --synthetic must be given"),
    ],
)
def test_command_refuses(
    values: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    absl_flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(**values):
        assert __main__.main(["peers"]) == 1
    assert message in capsys.readouterr().err

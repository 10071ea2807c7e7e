"""The whole corridor, as a user walks it: images, converter, ranks, report."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.data import make_tree

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def _run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )


def _python(module: str, *arguments: object) -> dict[str, object]:
    """RecordRanges a command line and returns the JSON of its last line."""
    done = _run(sys.executable, "-m", module, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _horovodrun(num_ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = pathlib.Path(sys.executable).with_name("horovodrun")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    return _run(program, "-np", num_ranks, sys.executable, *arguments, env=environment)


def _result(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The JSON of rank 0's last line; horovodrun puts the rank before each line."""
    assert done.returncode == 0, done.stderr + done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("[0]<stdout>:")
    return json.loads(last.partition(":")[2])


def _convert(raw_dir: pathlib.Path, output_dir: pathlib.Path) -> pathlib.Path:
    _python(
        "converters.imagenet",
        f"--input_dir={raw_dir}",
        f"--output_dir={output_dir}",
        "--num_train_shards=3",
    )
    return output_dir


@pytest.fixture(scope="module")
def raw_tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Synthesized images of 10 classes at a quarter of ImageNet's size."""
    folder = tmp_path_factory.mktemp("synthesized") / "raw"
    _python(
        "converters.synthesize",
        f"--output_dir={folder}",
        "--num_images=1000",
        "--num_classes=10",
        "--num_validation_images=200",
        "--size_scale=0.25",
    )
    return folder


@pytest.fixture(scope="module")
def records_dir(raw_tree: pathlib.Path) -> pathlib.Path:
    """The synthesized images as shards."""
    return _convert(raw_tree, raw_tree.with_name("records"))


def _accuracy(records_dir: pathlib.Path, folder: pathlib.Path) -> float:
    """Validation accuracy after a short training of the tiny model."""
    arguments = (
        f"--data_dir={records_dir}",
        "--model=tiny",
        "--batch_size=32",
        f"--checkpoint_dir={folder}",
    )
    _python("benchmarks.train", *arguments, "--num_epochs=12")
    result = _python("benchmarks.train", *arguments, "--mode=eval")
    assert result["num_evaluated"] == 200
    return result["accuracy"]


def _train_on_two_ranks(
    records_dir: pathlib.Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    return _horovodrun(2, "-m", "benchmarks.train", f"--data_dir={records_dir}", *flags)


def test_two_ranks_share_each_epoch_and_report_it(records_dir: pathlib.Path) -> None:
    done = _train_on_two_ranks(
        records_dir,
        "--model=tiny",
        "--batch_size=20",
        "--num_epochs=2",
    )

    result = _result(done)
    assert "Img/sec per rank: " in done.stdout
    assert "Total img/sec on 2 rank(s): " in done.stdout
    assert result["num_ranks"] == 2
    assert result["records"] == {
        "num_in_split": 1000,
        "num_used": 2000,
        "num_distinct": 1000,
        "times_used_min": 2,
        "times_used_max": 2,
        "num_on_several_ranks": result["records"]["num_on_several_ranks"],
    }
    assert len(result["examples_per_second_per_rank"]) == 2
    assert result["loss_last"] < result["loss_first"]


def test_two_ranks_share_three_uneven_shards_with_a_prime_number_of_records(
    tmp_path: pathlib.Path,
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=101)
    records_dir = _convert(raw_dir, tmp_path / "records")

    done = _train_on_two_ranks(
        records_dir,
        "--model=tiny",
        "--image_size=32",
        "--batch_size=4",
        "--num_epochs=1",
    )

    result = _result(done)
    # 12 steps of 4 on each rank; what does not fill a step on both is left out.
    records = result["records"]
    assert (records["num_used"], records["num_distinct"]) == (96, 96)
    assert records["num_on_several_ranks"] == 0


def test_evaluation_is_the_same_on_one_two_and_three_ranks(
    records_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """200 records in batches of 7: the last batches of each rank are padded."""
    arguments = (
        f"--data_dir={records_dir}",
        "--model=tiny",
        f"--checkpoint_dir={tmp_path}",
    )
    _python("benchmarks.train", *arguments, "--batch_size=50", "--num_epochs=2")
    evaluate = (*arguments, "--mode=eval", "--batch_size=7")

    results = [_python("benchmarks.train", *evaluate)]
    for num_ranks in (2, 3):
        done = _horovodrun(num_ranks, "-m", "benchmarks.train", *evaluate)
        results.append(_result(done))

    assert [result["num_evaluated"] for result in results] == [200, 200, 200]
    assert results[0]["accuracy"] == results[1]["accuracy"] == results[2]["accuracy"]
    assert results[0]["loss"] == pytest.approx(results[2]["loss"], rel=1e-5)


def test_wrong_arguments_end_all_ranks(records_dir: pathlib.Path) -> None:
    done = _train_on_two_ranks(
        records_dir,
        "--model=tiny",
        "--batch_size=501",
    )

    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "1000 records cannot give 2 ranks a batch of 501 each" in output


def test_classes_are_learned_and_shuffled_labels_are_not(
    raw_tree: pathlib.Path, records_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shuffled = tmp_path / "raw"
    shutil.copytree(raw_tree, shuffled)
    files = sorted(shuffled.glob("train/*/*.JPEG"))
    places = [path.parent for path in files]
    random.Random(0).shuffle(places)
    for path, place in zip(files, places, strict=True):
        path.rename(place / f"moved_{path.name}")

    learned = _accuracy(records_dir, tmp_path / "learned")
    by_chance = _accuracy(_convert(shuffled, tmp_path / "records"), tmp_path / "chance")

    chance = 0.1
    assert learned >= 5 * chance
    # 200 images: 3 standard deviations above chance are 0.164.
    assert by_chance < chance + 0.07


def test_resnet50_trains_on_two_ranks(records_dir: pathlib.Path) -> None:
    done = _train_on_two_ranks(
        records_dir,
        "--model=resnet50",
        "--num_steps=2",
        "--num_warmup_steps=1",
        "--batch_size=2",
    )

    result = _result(done)
    assert result["num_parameters"] == 25_636_712
    assert result["num_timed_steps"] == 2


COMMANDS = (
    "converters.folder",
    "converters.imagenet",
    "converters.synthesize",
    "converters.verify",
    "benchmarks.studies.conversion",
    "benchmarks.train",
    "benchmarks.report",
    "benchmarks.studies.realism",
)


@pytest.mark.parametrize("module", COMMANDS)
def test_help_teaches(module: str) -> None:
    done = _run(sys.executable, "-m", module, "--help")

    assert f"python -m {module} " in done.stdout, "an example"
    assert "JSON object" in " ".join(done.stdout.split()), "what the last line is"
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    for flag in re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', source):
        assert f"--{flag}: " in done.stdout or f"--[no]{flag}: " in done.stdout


def test_unknown_model_lists_the_known_ones() -> None:
    done = _run(sys.executable, "-m", "benchmarks.train", "--model=alexnet")

    assert done.returncode == 1
    assert "--model=alexnet: value should be one of <googlenet|" in done.stderr


def test_ranks_prove_themselves() -> None:
    result = _result(_horovodrun(3, "-m", "benchmarks.distributed.ranks"))

    assert (result["num_ranks"], result["sum"]) == (3, 3)


def test_installed_packages_work_from_any_folder(
    raw_tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The wheel holds all three packages and their data, and needs no checkout."""
    source = tmp_path / "source"
    tracked = _run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).stdout
    for name in tracked.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    installed = tmp_path / "installed"
    done = _run(
        sys.executable,
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--target", installed, source),
    )
    assert done.returncode == 0, done.stderr

    done = _run(
        sys.executable,
        *("-m", "converters.imagenet"),
        *(f"--input_dir={raw_tree}", f"--output_dir={tmp_path / 'out'}"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 1200

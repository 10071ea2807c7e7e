"""Conversions on a Ray cluster of two nodes on this host, one of which is killed."""

import itertools
import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import psutil
import pytest

from converters.jobs.work_dir import WORK_DIR_NAME
from converters.options import job
from tests.support.data.trees import SYNSETS, convert, digests, make_jpeg, upload
from tests.support.servers import ray_nodes, s3_server
from tfpipe.location.files import Files

# Shrinking takes time: the tests can look at a node while it writes a shard.
OPTIONS = {"num_train_shards": 10, "seed": 3, "policy": job.decided(short_side=700)}
FLAGS = ["--num_train_shards=10", "--seed=3", "--short_side=700", "--engine=ray"]


@pytest.fixture(scope="module")
def nodes(s3_address: str) -> Iterator[ray_nodes.Cluster]:
    """A cluster of two nodes with one CPU each, which know the object store."""
    with ray_nodes.cluster(2, **s3_server.environment(s3_address)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def raw_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a tree of 20 large images."""
    folder = tmp_path_factory.mktemp("raw")
    for number in range(20):
        synset = SYNSETS[number % len(SYNSETS)]
        path = folder / "train" / synset / f"{synset}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number % 8, height=1200 + number, width=1600))
    return folder


def _start(
    nodes: ray_nodes.Cluster, raw_dir: pathlib.Path, output: object, *more: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "converters.imagenet", f"--input_dir={raw_dir}"),
            *(f"--output_dir={output}", f"--ray_address={nodes.address}"),
            *(*FLAGS, *more),
        ],
        env=nodes.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _writer(
    nodes: Sequence[ray_nodes.Node], converter: "subprocess.Popen[str]"
) -> tuple[psutil.Process, str]:
    """Stops a process that writes a shard; returns the process and the shard."""
    while converter.poll() is None:
        for process in itertools.chain(*(node.processes() for node in nodes)):
            try:
                if parts := _parts(process):
                    process.suspend()
                    if parts == _parts(process):
                        return process, parts[0]
                    process.resume()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.002)
    pytest.fail(f"no shard was written on the nodes: {converter.communicate()}")


def _parts(process: psutil.Process) -> list[str]:
    paths = [pathlib.Path(file.path).name for file in process.open_files()]
    return [name.split(".")[0] for name in paths if name.endswith(".part")]


@pytest.fixture(scope="module")
def expected(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Digests of the files that one process of this host writes."""
    folder = tmp_path_factory.mktemp("one")
    convert(raw_dir, folder, **OPTIONS)
    return digests(folder)


def test_a_lost_node_changes_no_byte(
    nodes: ray_nodes.Cluster,
    raw_dir: pathlib.Path,
    expected: dict[str, str],
    tmp_path: pathlib.Path,
) -> None:
    converter = _start(nodes, raw_dir, tmp_path / "ray")
    writer, shard = _writer(nodes.nodes, converter)
    if writer in nodes.nodes[0].processes():  # it rests until the other node writes
        _, shard = _writer(nodes.nodes[1:], converter)
        writer.resume()
    done = [path.stem for path in (tmp_path / "ray" / WORK_DIR_NAME).glob("*/*.done")]
    nodes.nodes[1].kill()
    output, errors = converter.communicate(timeout=300)

    assert (converter.returncode, errors) == (0, "")
    assert json.loads(output.splitlines()[-1])["num_shards"] == 10
    assert shard not in done  # the other node has written it again
    assert shard in expected
    assert digests(tmp_path / "ray") == expected


def test_a_stopped_run_goes_on_without_the_cluster(
    nodes: ray_nodes.Cluster,
    raw_dir: pathlib.Path,
    expected: dict[str, str],
    tmp_path: pathlib.Path,
) -> None:
    converter = _start(nodes, raw_dir, tmp_path)
    writer, _ = _writer(nodes.nodes[:1], converter)
    writer.resume()
    converter.terminate()
    _, errors = converter.communicate(timeout=300)

    assert converter.returncode == 1
    assert errors.startswith("Error: interrupted. Complete shards are kept.")
    assert errors.count("\n") == 1
    assert not writer.is_running() or not _parts(writer)
    assert not list(tmp_path.glob("**/*.part"))
    convert(raw_dir, tmp_path, **OPTIONS)
    assert digests(tmp_path) == expected


def test_an_error_is_one_line(nodes: ray_nodes.Cluster, tmp_path: pathlib.Path) -> None:
    bad = tmp_path / "bad" / "train" / SYNSETS[0]
    bad.mkdir(parents=True)
    for number in range(20):
        (bad / f"{number}.JPEG").write_bytes(b"no image")

    fails = _start(nodes, tmp_path / "bad", tmp_path / "out", "--not_an_image=fail")
    _, errors = fails.communicate(timeout=300)

    assert (fails.returncode, errors.count("\n")) == (1, 1), errors
    assert re.match(rf"Error: {bad}/\d+\.JPEG: .* choose another policy\.\n", errors)


# Tasks that end at other times than the failing ones, some of them before they start.
_FAILING_RUNS = """
import sys, time
from converters.engines import processes, ray_cluster

def work(number):
    for _ in range(1 + number * 7 % 30):
        time.sleep(0.004)
        processes.image_done()
    if number > 5:
        raise ValueError(f"task {number}")

with ray_cluster.connected(sys.argv[1], num_workers=None):
    for _ in range(20):
        try:
            ray_cluster.run(work, range(40), num_images=0)
        except ValueError as error:
            print(error)
"""


def test_runs_that_fail_one_after_the_other_end_with_their_error(
    nodes: ray_nodes.Cluster,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAILING_RUNS, nodes.address],
        env=nodes.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"(task \d+\n){20}", done.stdout)


def test_images_come_from_a_url_and_shards_go_to_one(
    nodes: ray_nodes.Cluster,
    raw_dir: pathlib.Path,
    expected: dict[str, str],
    s3_folder: str,
    tmp_path: pathlib.Path,
) -> None:
    raw_url, out_url = f"{s3_folder}/raw", f"{s3_folder}/out"
    upload(raw_dir, raw_url)

    uploads = _start(nodes, raw_url, out_url)
    _, upload_errors = uploads.communicate(timeout=300)

    assert (uploads.returncode, upload_errors) == (0, "")
    files = Files(out_url)
    for name in files.names():
        path = tmp_path / "at_url" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.read(name))
    assert digests(tmp_path / "at_url") == expected

"""studies.loaders.data: copies of a data set's images."""

import pathlib
import tarfile

import pytest
import tensorflow as tf  # noqa: F401 - here, so that no test pays for its import

from studies.loaders import data
from studies.loaders.images import Job
from tests.support.data.colors import make_color_data


@pytest.fixture(scope="module")
def color_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Records of images of one color each, in three shards."""
    return make_color_data(tmp_path_factory.mktemp("colors"))


def test_copies_are_the_bytes_of_the_records(
    color_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    job = Job(data_dir=str(color_dir), peer_dir=str(tmp_path))

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
    job = Job(data_dir=str(color_dir), peer_dir=str(tmp_path))
    folder = data.make("jpeg", job)
    path, _ = data.files(job.peer_dir)[0]
    pathlib.Path(path).write_bytes(b"kept")

    assert data.make("jpeg", job) == folder
    assert pathlib.Path(path).read_bytes() == b"kept"
    with pytest.raises(ValueError, match="those of other shards"):
        data.make("tar", Job(data_dir=str(data_dir), peer_dir=str(tmp_path)))


def test_copies_need_a_folder(color_dir: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="--peer_dir must name a folder for copies"):
        data.make("jpeg", Job(data_dir=str(color_dir)))

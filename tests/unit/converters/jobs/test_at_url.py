"""converters.jobs.at_url: who may write to a place, and what is there afterwards.

A local folder stands for the place; the system tests use a real S3 server.
"""

import json
import pathlib
from typing import ClassVar

import pytest

from converters.jobs import at_url
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index

SHARD = "train-00000-of-00001"
OTHER = "validation-00000-of-00001"


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    folder = tmp_path / "place"
    folder.mkdir()
    return Files(str(folder))


def _look(
    files: Files, job: str = "a", *, overwrite: bool = False
) -> at_url.TargetState:
    return at_url.look(files, job=job, names={SHARD, "labels.txt"}, overwrite=overwrite)


def _put_data_set(files: Files, *names: str) -> None:
    """A data set of shards with these names."""
    shards = tuple(
        index.Shard(name=name, num_records=1, num_bytes=1, digest="x") for name in names
    )
    made = index.Index(
        name="x", label_base=1, classes=(("a", "b"),), splits={"x": shards}, made_by={}
    )
    index.write(made, files.location.text)
    for name in names:
        files.write(name, b"1")


def _publish(files: Files, state: at_url.TargetState, folder: pathlib.Path) -> None:
    """Publishes a new data set of one shard and one side file."""
    folder.mkdir()
    for name in (SHARD, "labels.txt", index.INDEX_NAME):
        (folder / name).write_text("new")
    names = [SHARD, "labels.txt"]
    at_url.publish(files, state, folder, names, num_workers=1)


def test_an_empty_place_is_free(files: Files) -> None:
    state = _look(files)

    assert state == at_url.TargetState(
        claim=at_url.Claim(job="a", names=["labels.txt", SHARD])
    )
    assert files.names() == {}


def test_a_place_with_a_claim_belongs_to_its_job(files: Files) -> None:
    at_url.write_claim(files, _look(files))
    files.write(SHARD, b"1")

    state = _look(files)
    with pytest.raises(FileExistsError, match="unfinished conversion that differs"):
        _look(files, "b")
    replaced = _look(files, "b", overwrite=True)

    assert state.is_claimed
    assert state.sizes[SHARD] == 1
    assert not replaced.is_claimed
    assert SHARD in replaced.claim.names


def test_a_data_set_is_replaced_only_if_told_so(files: Files) -> None:
    _put_data_set(files, SHARD, OTHER)

    with pytest.raises(FileExistsError, match="already holds a data set"):
        _look(files)
    state = _look(files, overwrite=True)

    assert state.has_index
    assert state.claim.names == ["labels.txt", SHARD, OTHER]


def test_strange_files_are_never_replaced(files: Files) -> None:
    files.write("notes.txt", b"1")
    with pytest.raises(FileExistsError, match=r"must be empty.*first is notes.txt"):
        _look(files, overwrite=True)

    _put_data_set(files, OTHER)
    assert "notes.txt" not in _look(files, overwrite=True).claim.names

    files.write(SHARD, b"1")
    with pytest.raises(FileExistsError, match=f"holds {SHARD}, which a new file"):
        _look(files, overwrite=True)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"x": 1}', b'{"job": "a", "names": ["../x"]}']
)
def test_a_claim_that_cannot_be_read_is_an_error(files: Files, content: bytes) -> None:
    """Its names are removed at the end, so that none may lead out of the place."""
    files.write(at_url.CLAIM_NAME, content)

    with pytest.raises(FileExistsError, match="cannot be read"):
        _look(files)


def test_a_broken_index_is_named_by_its_url(files: Files) -> None:
    files.write(index.INDEX_NAME, b"{")

    with pytest.raises(
        errors.BadIndexError, match=f"^{files.location.text}/index.json cannot"
    ):
        _look(files, overwrite=True)


def test_publishing_leaves_only_the_new_data_set(
    files: Files, tmp_path: pathlib.Path
) -> None:
    _put_data_set(files, SHARD, OTHER)
    files.write("notes.txt", b"1")

    _publish(files, _look(files, overwrite=True), tmp_path / "work")

    new = dict.fromkeys([SHARD, "index.json", "labels.txt"], 3)
    assert files.names() == new | {"notes.txt": 1}
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["index.json"]


class _Recorded(Files):
    """Files that note each change, and fail at one of them."""

    changes: ClassVar[list[str]]
    end: ClassVar[int]

    def _change(self, what: str) -> None:
        if len(self.changes) == self.end:
            raise errors.RemoteError("gone")
        self.changes.append(what)

    def write(self, name: str, content: bytes) -> None:
        self._change(f"write {name}")
        super().write(name, content)

    def upload(self, name: str, path: pathlib.Path) -> None:
        self._change(f"upload {name}")
        super().upload(name, path)

    def delete(self, name: str) -> None:
        self._change(f"delete {name}")
        super().delete(name)


def _recorded(files: Files, *, end: int = 99) -> Files:
    """The files of a place, which is gone after `end` changes."""
    kind = type("Recorded", (_Recorded,), {"changes": [], "end": end})
    found = kind(files.location.text)
    assert isinstance(found, Files)
    return found


def test_a_place_never_has_an_index_and_files_of_two_data_sets(
    files: Files, tmp_path: pathlib.Path
) -> None:
    _put_data_set(files, SHARD, OTHER)
    recorded = _recorded(files)

    _publish(recorded, _look(recorded, overwrite=True), tmp_path / "work")

    assert recorded.changes == [  # type: ignore[attr-defined]
        "write .converting.json",
        "delete index.json",
        f"upload {SHARD}",
        "upload labels.txt",
        "upload index.json",
        f"delete {OTHER}",
        "delete .converting.json",
    ]


@pytest.mark.parametrize("end", range(7))
def test_publishing_goes_on_where_it_was_cut_off(
    files: Files, tmp_path: pathlib.Path, end: int
) -> None:
    _put_data_set(files, SHARD, OTHER)
    cut = _recorded(files, end=end)
    work = tmp_path / "work"
    with pytest.raises(errors.RemoteError, match="gone"):
        _publish(cut, _look(cut, overwrite=True), work)

    # The same command again: a claimed place needs no --overwrite.
    state = _look(files, overwrite=end == 0)
    assert state.is_claimed == (end > 0)
    assert (at_url.CLAIM_NAME in files.names()) == (end > 0)
    at_url.publish(files, state, work, [SHARD, "labels.txt"], num_workers=1)

    assert files.names() == dict.fromkeys([SHARD, "index.json", "labels.txt"], 3)


def test_a_failed_job_takes_its_own_files_away(files: Files) -> None:
    at_url.write_claim(files, _look(files))
    files.write(SHARD, b"1")
    files.write("notes.txt", b"1")

    at_url.abandon(files, "b")
    assert len(files.names()) == 3
    at_url.abandon(files, "a")
    assert list(files.names()) == ["notes.txt"]


def test_a_failed_job_leaves_the_data_set_that_it_has_not_touched(files: Files) -> None:
    _put_data_set(files, SHARD)
    before = files.names()
    at_url.write_claim(files, _look(files, overwrite=True))

    at_url.abandon(files, "a")

    assert files.names() == before


def test_a_claim_is_json_that_names_every_file(files: Files) -> None:
    at_url.write_claim(files, _look(files))

    assert json.loads(files.read(at_url.CLAIM_NAME)) == {
        "job": "a",
        "names": ["labels.txt", SHARD],
    }

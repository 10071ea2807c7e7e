"""converters.engines.ray_cluster: what a node does with a task, without a cluster."""

import pathlib

import pytest

from converters.engines import ray_cluster


def _write(folder: pathlib.Path, name: str) -> str:
    for suffix in (".done", ".catalog", ""):
        (folder / f"{name}{suffix}").write_text(f"{name}{suffix}")
    return f"wrote {name}"


def _none() -> str:
    return ""


def test_a_node_that_sees_the_folder_writes_there(tmp_path: pathlib.Path) -> None:
    sent = ray_cluster._write_afar(_write, tmp_path, _none, ".done", "a")

    assert (sent.result, dict(sent.files)) == ("wrote a", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a", "a.catalog", "a.done")
    ]


def test_another_node_sends_its_files_the_marker_last_and_keeps_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    sent = ray_cluster._write_afar(_write, None, _none, ".done", "a")

    assert list(sent.files)[-1] == "a.done"
    assert sent.files == {name: name.encode() for name in ("a", "a.catalog", "a.done")}
    assert not list(tmp_path.iterdir())


def test_the_error_names_the_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "node_name", lambda: "10.0.0.7")

    with pytest.raises(OSError, match=r"^The node 10.0.0.7 lacks a disk\.$"):
        ray_cluster._write_afar(_write, tmp_path, lambda: "lacks a disk.", ".done", "a")

    assert not list(tmp_path.iterdir())

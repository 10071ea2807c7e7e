"""tfpipe.host.git_revision in a real git checkout."""

import pathlib
import subprocess

import pytest

import tfpipe
from tfpipe import host

_IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@b"]


def _git(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["git", *_IDENTITY, *words], cwd=folder, check=True)


def test_commit_and_whether_a_file_was_changed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, installed = tmp_path / "checkout", tmp_path / "checkout" / "site"
    installed.mkdir(parents=True)
    (checkout / "file").write_text("1")
    _git(checkout, "init", "-q")
    _git(checkout, "add", "file")
    _git(checkout, "commit", "-qm", "One", "--no-gpg-sign")
    _git(checkout, "tag", "v1")

    monkeypatch.setattr(host, "_CHECKOUT", checkout)
    clean = tfpipe.host.git_revision()
    (checkout / "file").write_text("2")
    changed = tfpipe.host.git_revision()
    monkeypatch.setattr(host, "_CHECKOUT", installed)
    elsewhere = tfpipe.host.git_revision()

    assert clean is not None
    assert len(clean) == 40
    assert int(clean, 16) > 0
    assert changed == f"{clean}-dirty"
    assert elsewhere is None

"""A compiler of the native op that hangs, finds no room or fails."""

import pytest

from tfpipe.native import build


def test_a_compiler_that_hangs_or_finds_no_room_is_named(tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    output = tmp_path / "made" / "x.so"

    monkeypatch.setattr(build, "MOST_SECONDS", 0.1)
    with pytest.raises(OSError, match=r"compiler sh did not end within 0.1 seconds"):
        build.run_compiler(["sh", "-c", "exec sleep 60"], output)
    monkeypatch.setattr(build, "MOST_SECONDS", 60)
    full = "echo 'No space left on device' >&2; exit 1"
    with pytest.raises(OSError, match="No space left") as raised:
        build.run_compiler(["sh", "-c", full], output)
    assert raised.value.filename == str(tmp_path)
    with pytest.raises(build.CompilerError, match="because"):
        build.run_compiler(["sh", "-c", "echo because >&2; exit 1"], output)

"""benchmarks.reporting.output: results as strict JSON."""

import json
import math
import os
import resource

import pytest

from benchmarks.reporting import output
from benchmarks.results import checks
from tests.support.data import chosen_paths

RESULT = {
    "command": "benchmarks.train",
    "loss_last": math.nan,
    "seconds": 1.5,
    "epochs": [{"loss": 1.0}, {"loss": math.inf}, {"loss": -math.inf}],
    "flags": ("a", True, None),
}
STRICT = {
    "command": "benchmarks.train",
    "loss_last": None,
    "seconds": 1.5,
    "epochs": [{"loss": 1.0}, {"loss": None}, {"loss": None}],
    "flags": ["a", True, None],
    "not_finite": ["loss_last", "epochs.loss"],
}


def _refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def _parse(text):
    return json.loads(text, parse_constant=_refuse)


def test_numbers_that_json_lacks_become_null_and_are_named(tmp_path, capsys):
    output.write(RESULT, tmp_path / "result.json")
    output.show(RESULT)

    expected = STRICT | {"digest": checks.digest(STRICT)}
    assert _parse((tmp_path / "result.json").read_text()) == expected
    assert _parse(capsys.readouterr().out) == expected
    assert math.isnan(RESULT["loss_last"])


def test_a_finite_result_is_written_as_it_is(capsys):
    output.show({"a": [1, 2.5, {"b": "nan"}]})

    assert _parse(capsys.readouterr().out) == {"a": [1, 2.5, {"b": "nan"}]}
    with pytest.raises(ValueError, match="NaN is not JSON"):
        _parse(json.dumps(RESULT))


def test_a_text_is_written_whole_or_not_at_all(tmp_path):
    """As on a full disk: the operating system stops the write after 4 kB."""
    path = tmp_path / "page.html"
    output.write_text("old", path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/page\.html'"):
            output.write_text("x" * 100_000, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_a_user_chose_stays_what_it_is(tmp_path, capfd):
    chosen_paths.assert_stay(
        lambda path, text: output.write_text(text, path), tmp_path, capfd
    )


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path, monkeypatch):
    path, real_fsync = tmp_path / "page.html", os.fsync

    def fsync(descriptor):
        monkeypatch.setattr(os, "fsync", real_fsync)
        output.write_text("of another", path)  # while the first is on its way
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    output.write_text("a page", path)

    assert path.read_text() == "a page"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_and_no_hidden_one(tmp_path):
    (tmp_path / "file").touch()
    for folder, kind in (("file", NotADirectoryError), ("none", FileNotFoundError)):
        with pytest.raises(kind) as caught:
            output.write_text("a page", tmp_path / folder / "page.html")

        path = tmp_path / folder / "page.html"
        assert str(caught.value).endswith(f": '{path}'")

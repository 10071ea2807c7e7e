"""benchmarks.reporting.output: results as strict JSON, and the end of a study."""

import json
import math

import pytest

from benchmarks.reporting import output

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
    output.print_line(RESULT)

    assert _parse((tmp_path / "result.json").read_text()) == STRICT
    assert _parse(capsys.readouterr().out) == STRICT
    assert math.isnan(RESULT["loss_last"])


def test_a_finite_result_is_written_as_it_is(capsys):
    output.print_line({"a": [1, 2.5, {"b": "nan"}]})

    assert _parse(capsys.readouterr().out) == {"a": [1, 2.5, {"b": "nan"}]}
    with pytest.raises(ValueError, match="NaN is not JSON"):
        _parse(json.dumps(RESULT))


STUDY = {"command": "x", "figures": {"ratio": 1.5}}
LINE = '{"command":"x","figures":{"ratio":1.5}}'


def test_finish_prints_the_table_then_the_line_and_writes_the_file(tmp_path, capsys):
    path = tmp_path / "result.json"

    output.finish(STUDY, "a table\nof two lines", path=path)

    assert capsys.readouterr().out == f"a table\nof two lines\n{LINE}\n"
    assert json.loads(path.read_text()) == STUDY


@pytest.mark.parametrize("path", [None, ""])
def test_finish_without_a_path_writes_no_file(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    output.finish(STUDY, "table", path=path)

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == f"table\n{LINE}\n"


def test_figures_are_printed_even_if_the_file_cannot_be_written(tmp_path, capsys):
    with pytest.raises(FileNotFoundError):
        output.finish(STUDY, "table", path=tmp_path / "missing" / "result.json")

    assert capsys.readouterr().out == f"table\n{LINE}\n"

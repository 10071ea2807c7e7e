"""benchmarks.reporting.output: the table, the file and the last line of a study."""

import json

import pytest

from benchmarks.reporting import output

RESULT = {"command": "x", "figures": {"ratio": 1.5}}
LINE = '{"command":"x","figures":{"ratio":1.5}}'


def test_finish_prints_the_table_then_the_line_and_writes_the_file(tmp_path, capsys):
    path = tmp_path / "result.json"

    output.finish(RESULT, "a table\nof two lines", path=path)

    assert capsys.readouterr().out == f"a table\nof two lines\n{LINE}\n"
    assert json.loads(path.read_text()) == RESULT


@pytest.mark.parametrize("path", [None, ""])
def test_finish_without_a_path_writes_no_file(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    output.finish(RESULT, "table", path=path)

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == f"table\n{LINE}\n"


def test_figures_are_printed_even_if_the_file_cannot_be_written(tmp_path, capsys):
    with pytest.raises(FileNotFoundError):
        output.finish(RESULT, "table", path=tmp_path / "missing" / "result.json")

    assert capsys.readouterr().out == "table\n"

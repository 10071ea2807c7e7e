"""Lines on stderr: whole, and some of them once."""

import sys

from tfpipe.shard_cache import lines


class Writes(list[str]):
    """Stands in for stderr; lists each write with a text."""

    def write(self, text: str) -> None:
        if text:
            self.append(text)

    def flush(self) -> None:
        pass


def test_a_line_is_one_write_so_that_lines_of_threads_do_not_mix(monkeypatch):
    written = Writes()
    monkeypatch.setattr(sys, "stderr", written)

    lines.say("a")
    lines.say("a")

    assert written == ["shard cache: a\n"] * 2


def test_the_first_line_of_a_kind_is_said(capsys):
    said = lines.Lines()
    for text, kind in [("a", ""), ("a", ""), ("b", "x"), ("c", "x"), ("c", "")]:
        said.say_once(text, kind)

    told = capsys.readouterr().err.splitlines()
    assert told == ["shard cache: a", "shard cache: b", "shard cache: c"]

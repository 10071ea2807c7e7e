"""converters.inputs.patterns: files that --input names."""

import pathlib
import re

import pytest
from hypothesis import given, settings, strategies as st

from converters.inputs import patterns
from converters.inputs.meaning import USUAL

TARS = patterns.Kind("tars", is_one=lambda name: name.endswith(".tar"))


@settings(deadline=None)
@given(
    first=st.integers(0, 300),
    last=st.integers(0, 300),
    width=st.integers(1, 6),
    words=st.lists(st.text("ab*?", max_size=2), min_size=2, max_size=4),
)
def test_braces_stand_for_every_name_once_in_order(
    first: int, last: int, width: int, words: list[str]
) -> None:
    start = f"{first:0{width}d}"

    found = patterns.expand_braces(f"x{{{start}..{last}}}y{{{','.join(words)}}}")

    step = 1 if first <= last else -1
    numbers = [f"{n:0{len(start)}d}" for n in range(first, last + step, step)]
    assert found == [f"x{n}y{word}" for n in numbers for word in words]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a{0..9", "must have braces such as"),
        ("a}b", "must have braces such as"),
        ("a{1}b", "got {1} in"),
        ("a{{0..1},2}", "must have braces"),
        ("{0..9999999}", "at most 1,000,000 files"),
        ("{0..999}{0..999}{0..9}", "at most 1,000,000 files"),
        ("", "got nothing"),
        ("no*.tar", "must name at least one file, got none"),
        ("train=", "got nothing"),
        ("s3://key:secret@b/x.tar", "without a password"),
        ("s3://key:secret@b/{x.tar", "none of them inside another"),
        ("s3://key:secret@b/{x}.tar", "got others in s3://..."),
        ("s3://key:secret@b/{0..9999999}.tar", "at most 1,000,000 files"),
        ("trian=s3://key:secret@b/x.tar", "the split is one of train"),
        ("s3://b/x.tar?X-Amz-Signature=1", "may hold a secret"),
        ("ftp://b/x.tar", "got ftp://"),
        ("http://host/*.tar", "must name each file of a web server"),
    ],
)
def test_wrong_words_are_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, word: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        patterns.find([word], TARS, USUAL)
    assert "secret@" not in str(caught.value)
    assert "Signature" not in str(caught.value)


def test_files_folders_and_patterns_give_sorted_files_of_a_split(
    tmp_path: pathlib.Path,
) -> None:
    for name in ("a-10.tar", "a-2.tar", "b{1}.tar", ".hidden.tar", "note.txt", "v.tar"):
        (tmp_path / name).write_bytes(name.encode())
    for name in ("below/c.tar", ".git/d.tar", "__MACOSX/d.tar", "dali_idx/a.tar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")

    def names(*words: str) -> list[tuple[str, str]]:
        found, _ = patterns.find(words, TARS, USUAL)
        _, found = patterns.relative_to_one(found)
        assert all(
            (tmp_path / item.file).stat().st_size == item.num_bytes for item in found
        )
        return [(item.split, item.file) for item in found]

    both = names(f"{tmp_path}/a-*.tar", f"validation={tmp_path}/v.tar")
    assert both == [
        ("train", "a-2.tar"),
        ("train", "a-10.tar"),
        ("validation", "v.tar"),
    ]
    assert names(f"test={tmp_path}")[0] == ("test", "a-2.tar")
    assert len(names(str(tmp_path))) == 5
    assert names(f"{tmp_path}/b{{1}}.tar") == [("train", "b{1}.tar")]
    deep = names(f"{tmp_path}/**/c.tar", f"{tmp_path}/v.tar")
    assert [file for _, file in deep] == ["below/c.tar", "v.tar"]
    with pytest.raises(ValueError, match=r"v\.tar in two patterns"):
        names(f"{tmp_path}/v.tar", f"test={tmp_path}/below/../v.tar")
    with pytest.raises(FileNotFoundError, match=r"a-3\.tar"):
        names(f"{tmp_path}/a-{{2..3}}.tar")

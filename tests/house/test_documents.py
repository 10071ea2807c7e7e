"""The documents: few and plain words, notebooks of their pages, commands that exist."""

import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.house.code import ROOT
from tests.house.words import PRONOUNS
from tests.support.data import golden, notebooks
from tfpipe.cli import flags, names

PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if "generated" not in path.parts and path.name != "flags.md"
)
NOTEBOOKS = ("own_photos", "fine_tune")
# Words of prose, without Evidence, what is generated, and blocks. A newcomer reads
# fewer words; a new page takes the place of others.
_FEW = {path for path in PAGES if "evidence" not in path.parts}
_WORD = re.compile(r"[A-Za-z][\w'-]*")
MOST_WORDS = 24_900
# Pronouns in 100 words: a ceiling only falls. The goal is 3.5.
CEILING, SLACK = 3.3, 0.3


def _prose(path: pathlib.Path) -> str:
    """Returns the text of a page without blocks, code, addresses of links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "x", text))


def test_words_are_few_and_plain() -> None:
    texts = {path: _prose(path) for path in (ROOT / "README.md", *PAGES)}
    counts = {path: len(_WORD.findall(text)) for path, text in texts.items()}
    num_words = sum(n for path, n in counts.items() if path in _FEW)
    num_pronouns = sum(len(PRONOUNS.findall(text)) for text in texts.values())
    share = 100 * num_pronouns / sum(counts.values())

    assert num_words <= MOST_WORDS
    assert share <= CEILING, "name the noun again"
    assert share > CEILING - SLACK, f"lower the ceiling {CEILING} to {share:.1f}"


def _headings(path: pathlib.Path) -> set[str]:
    """Returns the anchors of a page, as MyST and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {
        re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
        for title in titles
    }


def test_links_lead_to_files_and_headings() -> None:
    wrong = [
        f"{path.name}: {link}"
        for path in (*ROOT.glob("*.md"), *PAGES)
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", path.read_text())
        if not link.startswith("generated/") and not _leads(path, link)
    ]

    assert wrong == []


def _leads(path: pathlib.Path, link: str) -> bool:
    target, _, heading = link.partition("#")
    page = path.parent / target if target else path
    return page.exists() and (not heading or heading in _headings(page))


# What a newcomer asks, the page that answers, and words of the answer.
QUESTIONS = {
    "fine-tune a model": ("tutorials/fine_tune.md", 'weights="imagenet"'),
    "resume within an epoch": ("how_to/resume.md", "build(state=saved.state)"),
    "read GZIP shards": ("how_to/own_tfrecords.md", "gzip -dc"),
    "run on two hosts": ("how_to/several_hosts.md", "-H host1:4,host2:4"),
    "is S3 fast enough": ("tutorials/s3.md", "tfpipe storage s3://"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_two_clicks_from_the_front_page(question: str) -> None:
    name, words = QUESTIONS[question]
    docs = ROOT / "docs"
    first = {docs / link for link in _clicked(docs / "index.md")}
    second = {
        (page.parent / link).resolve() for page in first for link in _clicked(page)
    }

    assert docs / name in first | second
    assert words in (docs / name).read_text()


def _clicked(path: pathlib.Path) -> Iterator[str]:
    """Yields the pages that the text and the cards of a page lead to."""
    text = path.read_text()
    yield from re.findall(r"\]\((?!\w+:)([^)#\s]+\.md)", text)
    yield from (f"{page}.md" for page in re.findall(r"^:link: (.*)", text, re.M))


def test_no_sentence_opens_with_a_riddle() -> None:
    opening = re.compile(r"(?:^|[.:] |\n)(Of|That|What|Which) (?!.*\?)", re.M)
    found = {
        f"{path.name}: {match[0].strip()}"
        for path in PAGES
        for match in opening.finditer(re.sub(r"^#.*$", "", _prose(path), flags=re.M))
    }

    assert sorted(found) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_those_of_their_pages(name: str) -> None:
    """The cells are run with the page, by tests/system/docs/test_pages.py."""
    page = ROOT / f"docs/tutorials/{name}.md"
    text = notebooks.of_page(page.read_text())

    assert golden.stored(f"../../../docs/tutorials/{name}.ipynb", text) == text


_COMMAND = re.compile(
    r"\bpython -m ((?:converters|benchmarks)\.\w+)"
    r"|(?<![\w./-])tfpipe ([a-z]+ ?[a-z]*)"
)


def _command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yields each command in a block: the page and line, and the words behind it."""
    for path in (ROOT / "README.md", ROOT / "BUILD.md", *PAGES):
        blocks = re.findall(
            r"^```(?:console|sh)\n.*?^```|(?:^    .*\n)+", path.read_text(), re.S | re.M
        )
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if _COMMAND.search(line) and not line.startswith(("- ", "next ", "{")):
                yield f"{path.relative_to(ROOT)}: {line}", line.split()


def _unknown_flags() -> Iterator[str]:
    commands: dict[str, set[str]] = {}
    for name, command in names.commands_of(""):
        common = {"help", "helpfull", *(flag.name for flag in flags.common())}
        known = commands.setdefault(name, common)
        known |= {option.name for option in command.flags}
    commands |= {module: commands[n] for n, module in names.MODULES.items()}
    for place, words in _command_lines():
        match = _COMMAND.search(" ".join(words))
        assert match is not None
        name = match[1] or match[2].strip()
        name = name if name in commands else name.partition(" ")[0]
        if name not in commands:
            continue  # a word of prose behind tfpipe
        rest = " ".join(words)[match.end() :].partition(" -- ")[0]
        for flag in re.findall(r"(?<!\S)--(?:no)?([a-z_0-9]+)", rest):
            if flag not in commands[name] and f"no{flag}" not in commands[name]:
                yield f"{place}: --{flag}"


def test_commands_of_the_documents_have_their_flags() -> None:
    assert len([*_command_lines()]) > 100
    assert [*_unknown_flags()] == []

"""The site: built without a warning, complete, and without requests to other hosts."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tfpipe
from tests.house.code import ROOT
from tests.support.data.made_once import made_once
from tfpipe.cli import names

pytest.importorskip("furo")

# What a page loads by itself, in contrast to the links that a reader follows.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


def _build(folder: pathlib.Path) -> None:
    """Builds the site of a copy: a build writes pages beside those of the checkout."""
    (folder / "checkout").mkdir()
    for path in ROOT.iterdir():
        if path.name != "docs" and not path.name.startswith("."):
            (folder / "checkout" / path.name).symlink_to(path)
    generated = shutil.ignore_patterns("generated", "__pycache__")
    shutil.copytree(ROOT / "docs", folder / "checkout/docs", ignore=generated)
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [sys.executable, *command, folder / "checkout/docs", folder / "site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "site", _build) / "site"


class _Loaded(html.parser.HTMLParser):
    """Collects the addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        key = "href" if tag == "link" else LOADED.get(tag, "")
        self.addresses.append(values.get(key) or "")


def test_no_page_loads_anything_of_another_host(site: pathlib.Path) -> None:
    pages = sorted(site.rglob("*.html"))
    loaded = set()
    for page in pages:
        parser = _Loaded()
        parser.feed(page.read_text())
        loaded |= {*parser.addresses}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))

    assert len(pages) > 100
    assert [link for link in loaded if re.match(r"(https?:)?//", link)] == []
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", styles) == []


def test_each_public_name_and_each_command_has_a_page(site: pathlib.Path) -> None:
    for name in tfpipe.__all__:
        page = (site / f"generated/api/{name}.html").read_text()
        assert f"tfpipe.{name}" in page
    for name in names.MODULES:
        page = site / f"generated/commands/{name.replace(' ', '_')}.html"
        assert "Flags" in page.read_text()


@pytest.mark.parametrize("word", ["shuffl", "heic", "au"])  # as the search stems them
def test_search_finds(word: str, site: pathlib.Path) -> None:
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])

    assert index["terms"].get(word) or index["titleterms"].get(word)

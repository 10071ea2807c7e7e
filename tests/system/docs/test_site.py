"""The site: built without a warning, complete, and without requests to other hosts.

A build takes most of a minute: `make torture` builds, `make test` makes the generated
pages and checks all links (tests/house/test_documents.py).
"""

import html.parser
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

import tfpipe
from tests.house.code import ROOT
from tests.support.data.made_once import made_once
from tests.support.faults.torture import IS_LONG
from tests.support.servers import browser
from tfpipe.cli import names

pytest.importorskip("furo")

# What a page loads by itself, in contrast to the links that a reader follows.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}

# Texts whose contrast to the colour behind them is below 4.5, the limit of WCAG AA.
FAINT_TEXTS = """(() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => parts(color).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const isOpaque = color => parts(color).length < 4 || parts(color)[3] > 0.99;
  const behind = e => {
    while (e && !isOpaque(getComputedStyle(e).backgroundColor)) e = e.parentElement;
    return e ? getComputedStyle(e).backgroundColor : "rgb(255, 255, 255)";
  };
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
    if (!text || !e.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.add(`faint ${e.tagName}.${e.className}`);
  }
  return [...found];
})()"""


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
    if not IS_LONG:
        pytest.skip("TORTURE=1: a build of the site takes 50 seconds")
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


def test_each_public_name_and_each_command_has_a_page(tmp_path: pathlib.Path) -> None:
    path = ROOT / "docs/site_reference.py"
    spec = importlib.util.spec_from_file_location("site_reference", path)
    assert spec is not None
    assert spec.loader is not None
    site_reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site_reference)
    site_reference.write(tmp_path)

    for name in tfpipe.__all__:
        assert f"tfpipe.{name}" in (tmp_path / f"api/{name}.md").read_text()
    for name in names.MODULES:
        page = tmp_path / f"commands/{name.replace(' ', '_')}.md"
        assert "## Flags" in page.read_text()


def test_generated_pages_are_in_the_site(site: pathlib.Path) -> None:
    for name in tfpipe.__all__:
        assert f"tfpipe.{name}" in (site / f"generated/api/{name}.html").read_text()
    for name in names.MODULES:
        page = site / f"generated/commands/{name.replace(' ', '_')}.html"
        assert "Flags" in page.read_text()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_pages_fit_the_window_and_can_be_read(
    site: pathlib.Path, tab: browser.Page, width: int, scheme: str
) -> None:
    faults = {}
    for path in sorted(site.rglob("*.html")):
        tab.open(path, width=width, scheme=scheme, is_drawn=False)
        too_wide = tab.value("document.documentElement.scrollWidth") > width
        outside = [u for u in tab.requests() if not u.startswith(("data:", "file:"))]
        if found := [*outside, *tab.value(FAINT_TEXTS), *["too wide"] * too_wide]:
            faults[path.relative_to(site).as_posix()] = found

    assert faults == {}


@pytest.mark.parametrize("word", ["shuffle", "HEIC", "AU"])
def test_search_finds(word: str, site: pathlib.Path, tab: browser.Page) -> None:
    tab.open(site / "search.html", width=1280, scheme="light", is_drawn=False)
    tab.value(f"void (location.search = '?q={word}')")
    found = "!!document.querySelector('#search-results a[href*=\"glossary.html\"]')"
    end = time.monotonic() + 30
    while not tab.value(found) and time.monotonic() < end:
        time.sleep(0.05)

    assert tab.value(found)

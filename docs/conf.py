"""The site: `make docs` builds it. No page asks another host for anything."""

import pathlib
import sys

from docutils import nodes

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import site_reference  # noqa: E402

project = "tfpipe"
html_title = "tfpipe"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
# The site has a page for each command in place of all flags on one page.
exclude_patterns = ["reference/flags.md"]
nitpicky = False
smartquotes = False  # --flag and "text" are as they are typed; see _dashes

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types, shapes and ranges
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Element"]
highlight_language = "none"  # what docstrings show by spaces is mostly no code
default_role = "literal"  # `name` is code in docstrings

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
copybutton_selector = "div:not(.highlight-text) > div.highlight pre"


def setup(app):
    """Writes the generated pages before Sphinx looks for pages."""
    site_reference.write(pathlib.Path(app.srcdir) / "generated")
    # Before napoleon, whose priority is 500, and after it.
    app.connect("autodoc-process-docstring", site_reference.readable, priority=400)
    app.connect("autodoc-process-docstring", site_reference.as_rst, priority=600)
    app.connect("source-read", site_reference.inside)
    app.connect("doctree-read", _dashes)


def _dashes(app, doctree):
    """Writes a dash between a parameter and its text, where autodoc has two hyphens."""
    for text in [*doctree.findall(nodes.Text)]:
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))

"""Pages of the site from the code: API, commands, errors.

In: docstrings, options of the commands, golden messages. Out: Markdown below
`docs/generated`, which git does not know.
"""

import importlib
import inspect
import os
import pathlib
import re
from collections.abc import Iterator

import tfpipe
from tfpipe.cli import help as help_texts, names

ROOT = pathlib.Path(__file__).parents[1]

# All public names, with a page of their own; the most used come first in a group.
GROUPS = {
    "Pipelines": "imagenet_train imagenet_eval ImageOptions Pipeline Mixture Tuning",
    "Sources": "TFRecordSource SyntheticSource Sampling Subset ShardCache Files "
    "Location",
    "Stages": "Interleave Map EachExample Batch Prefetch Take Cache Shuffle Service "
    "AssertCardinality",
    "Ops on the record": "Parse ParseBoxes EntryPoints Select Reseed",
    "Ops on the image": "RandomCrop CenterCrop RandomScaleCrop Resize Flip Normalize "
    "Cast ToNCHW ColorJitter DistortColor RandAugment RandomErasing Cutout",
    "Ops on a batch": "MixUp CutMix OneHot",
    "Training loops": "State CheckpointState StateCallback LogInput StepTimer FaultLog "
    "preflight sum_metrics",
    "Measuring and tuning": "profile throughput headspace tune search_tuning Search "
    "load_tuned ServicePayoff",
    "Modules": "errors host recipes view",
}

# Pages of the checkout that the site shows as well.
PROJECT = ("BUILD.md", "CHANGELOG.md", "CONTRIBUTING.md", "studies/results/README.md")


def write(folder: pathlib.Path) -> None:
    """Writes all generated pages.

    Args:
        folder: Where the pages go; older pages are replaced.

    Raises:
        ValueError: If a public name of tfpipe is in no group, or in two.
    """
    grouped = sorted(name for text in GROUPS.values() for name in text.split())
    if grouped != sorted(tfpipe.__all__):
        different = (
            sorted({*grouped} ^ {*tfpipe.__all__}) or "a name that is there twice"
        )
        raise ValueError(f"GROUPS must have each public name once, got {different}.")
    pages = {**dict(_api()), **dict(_commands()), **dict(_project())}
    pages["errors.md"] = _errors()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # Sphinx reads what changed
            path.write_text(text)


def readable(app, what, name, obj, options, lines) -> None:
    """Prepares a docstring for napoleon: names of several arguments in one line."""
    text = re.sub(r"(?m)^( {4}[\w, ]+,)\n {8}", r"\1 ", "\n".join(lines))
    # A pattern such as "*.tfrec" is no emphasis.
    lines[:] = re.sub(r'"([^"\s]*\*[^"\s]*)"', r"``\1``", text).split("\n")


def as_rst(app, what, name, obj, options, lines) -> None:
    """Makes literal blocks of what a docstring shows by spaces alone.

    Lists of features, drawings of trees and code stand indented below a paragraph, and
    tables begin with a bar. Fields and doctests are reStructuredText already.
    """
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    for index, block in enumerate(blocks):
        own = block.split("\n")
        if own[0].startswith("|"):
            own = [f"    {line}" for line in own]
        first = next((i for i, line in enumerate(own) if line[:4] == "    "), None)
        rest = own[first:] if first is not None else []
        is_plain = rest and not re.match(r"\s*(:|\.\.|>>>|[*-] )", own[0])
        if is_plain and all(line.startswith("    ") for line in rest):
            head = [*own[:first], ""] if first else []
            blocks[index] = "\n".join([*head, "::", "", *rest])
    lines[:] = "\n\n".join(blocks).split("\n")


def inside(app, docname: str, source: list[str]) -> None:
    """Leads links out of docs/ to the pages that `_project` makes of these files."""
    source[0] = _led(source[0], "../" * (docname.count("/") + 1))


def _led(text: str, up: str) -> str:
    """Replaces links to the files of PROJECT by links to their pages.

    Args:
        text: Markdown.
        up: The way from its page to the top of the checkout, such as "../../".
    """
    for path in PROJECT:
        page = f"/generated/project/{path.replace('/', '_')}"
        text = re.sub(rf"\]\({re.escape(up + path)}(?=[)#])", f"]({page}", text)
    return text


def _first_sentence(obj: object) -> str:
    """Returns the first sentence of a docstring, in one line."""
    text = " ".join((inspect.getdoc(obj) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0].replace("|", "\\|")


def _api() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each page of the API."""
    index = ["# API", "", "All public names of `tfpipe`."]
    listed = []
    for title, group in GROUPS.items():
        index += ["", f"## {title}", "", "| name | |", "|---|---|"]
        for name in group.split():
            obj = getattr(tfpipe, name)
            index.append(f"| [`{name}`]({name}.md) | {_first_sentence(obj)} |")
            listed.append(name)
            yield f"api/{name}.md", _api_page(name, obj)
    toc = ["", "```{toctree}", ":hidden:", "", *sorted(listed, key=str.lower), "```"]
    yield "api/index.md", "\n".join([*index, *toc, ""])


def _api_page(name: str, obj: object) -> str:
    title = f"# `tfpipe.{name}`\n\n"
    if inspect.ismodule(obj):
        lines = [f".. automodule:: tfpipe.{name}", "   :members:"]
    elif inspect.isclass(obj):
        lines = [f".. autoclass:: tfpipe.{name}", "   :members:"]
    else:
        lines = [f".. autofunction:: tfpipe.{name}"]
    body = "\n".join(lines)
    return f"{title}```{{eval-rst}}\n{body}\n```\n"


def _commands() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each page of a command."""
    index = ["# Commands", "", "`tfpipe NAME` and `python -m MODULE` are the same."]
    toc = ["", "```{toctree}", ":hidden:", ""]
    commands: dict[str, list] = {}
    for name, command in names.commands_of(""):
        commands.setdefault(name, []).append(command)
    for title, part in names.MENU.items():
        index += ["", f"## {title}", "", "| command | |", "|---|---|"]
        for name, (module, purpose) in part.items():
            page = name.replace(" ", "_")
            index.append(f"| [`tfpipe {name}`]({page}.md) | {purpose} |")
            toc.append(page)
            yield f"commands/{page}.md", _command_page(name, module, commands[name])
    yield "commands/index.md", "\n".join([*index, *toc, "```", ""])


def _command_page(name: str, module: str, commands: list) -> str:
    doc = names.as_typed(inspect.getdoc(importlib.import_module(module)) or "")
    text = f"# tfpipe {name}\n\n`python -m {module}`\n\n{_as_markdown(doc)}\n"
    for command in commands:
        parts = help_texts.parts_of(command.flags, command.groups)
        title = f"Flags of {command.form}" if command.form else "Flags"
        table = _escaped(help_texts.table(parts), "<")  # <split> is a word, and no tag
        text += f"\n## {title}\n\n{table}\n"
    return text


def _as_markdown(doc: str) -> str:
    """Makes paragraphs of a docstring, and blocks of what stands by spaces or bars."""
    blocks = []
    for block in doc.split("\n\n"):
        if re.search(r"^[ |]", block, re.M):
            blocks.append(f"```text\n{block}\n```")
            continue
        blocks.append(_escaped(" ".join(block.split()), r"[*<]|(?<!\w)_"))
    return "\n\n".join(blocks)


def _escaped(text: str, signs: str) -> str:
    """Writes a backslash before each match of a pattern that is not in code."""
    parts = text.split("`")  # every second part is code
    parts[::2] = [re.sub(f"({signs})", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _project() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each page of PROJECT, with links of the site."""
    for path in PROJECT:
        folder = os.path.dirname(path)

        def page(link: re.Match[str], folder: str = folder) -> str:
            target = os.path.normpath(os.path.join(folder, link[1]))
            if target.startswith("docs/"):
                return f"](/{target.removeprefix('docs/')}"
            return f"](../../../{target}"

        text = (ROOT / path).read_text()
        text = re.sub(r"\]\((?![a-z]+:|#)([^()#\s]+)", page, text)
        text = _led(text, "../../../")
        yield f"project/{path.replace('/', '_')}", f"---\norphan: true\n---\n\n{text}"


def _errors() -> str:
    """Returns the page of messages, sorted by kind as the golden file is."""
    text = (ROOT / "tests/house/golden/errors.txt").read_text()
    text = text.partition("\n\n")[2].replace("{scene}/", "").replace("{scene}", ".")
    lines = [
        "# Messages",
        "",
        "Wrong use and damaged data, and what tfpipe says. A test compares each text.",
    ]
    for piece in re.split(r"^(?=# |>>> |\$ )", text, flags=re.M):
        if piece.startswith("# "):
            title = " ".join(line.lstrip("# ") for line in piece.strip().splitlines())
            lines += ["", f"## {title.rstrip('.')}"]
        elif piece.strip():
            lines += ["", "```text", piece.strip(), "```"]
    return "\n".join([*lines, ""])

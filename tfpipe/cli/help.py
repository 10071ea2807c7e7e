"""The help of a command: its purpose, examples, and flags.

In: the docstring of the module, whose first indented lines are examples, and the
options. Out: text. --help has at most 40 lines: the first groups have a line a flag,
and the groups that do not fit list only names. Paragraphs of the docstring fill the
other lines. --helpfull says all. `doc` is the docstring of a command, and `parts` are
its flags, as `parts_of` returns them.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from tfpipe.cli.fields import Option

MOST_LINES = 40
WIDTH = 80
_NAMES_WIDTH = 27
_ARGUMENTS, _REQUIRED = "Arguments", "Required"
_FIRST, _REST = (_ARGUMENTS, _REQUIRED), "Other flags"
# The last group of many commands. The short help has its names alone.
STORES = "Requests to stores"

# A part of the help: its title, and its flags.
Part = tuple[str, Sequence[Option]]


def parts_of(options: Iterable[Option], groups: Sequence[str]) -> list[Part]:
    """Returns arguments, required flags, and groups of flags, without empty parts.

    Args:
        options: The flags and arguments of a command.
        groups: Titles in the order of the help. Other groups come after these.
    """
    by_title: dict[str, list[Option]] = {title: [] for title in (*_FIRST, *groups)}
    for option in options:
        title = option.about.group or _REST
        if option.about.is_argument:
            title = _ARGUMENTS
        elif option.is_required:
            title = _REQUIRED
        by_title.setdefault(title, []).append(option)
    by_title[STORES] = by_title.pop(STORES, [])
    return [(title, own) for title, own in by_title.items() if own]


def short(doc: str, parts: Sequence[Part]) -> str:
    """Returns the help of at most `MOST_LINES` lines."""
    head, end = _head(doc), ["", "--helpfull says all about the command and its flags."]
    forms = [[_names(*part), _lines(*part), _sentences(*part)] for part in parts]
    level = [0] * len(parts)
    for wanted in (1, 2):
        for index, (title, _) in enumerate(parts):
            if title == STORES:
                continue
            trial = [*level[:index], wanted, *level[index + 1 :]]
            num_lines = len(head) + len(_joined(forms, trial)) + len(end)
            if num_lines <= MOST_LINES:
                level = trial
            elif title not in _FIRST:
                break
    flags = [*_joined(forms, level), *end]
    for paragraph in _prose(doc):
        if len(head) + len(paragraph) + len(flags) >= MOST_LINES:
            break
        head += ["", *paragraph]
    return "\n".join([*head, *flags])


def _joined(forms: Sequence[Sequence[list[str]]], level: Sequence[int]) -> list[str]:
    """Returns the lines of all parts; parts of names alone stand in a row."""
    lines: list[str] = []
    for index, form in enumerate(forms):
        if level[index] or index == 0 or level[index - 1]:
            lines.append("")
        lines += form[level[index]]
    return lines


def _names(title: str, options: Sequence[Option]) -> list[str]:
    """Returns the names of the flags of a part."""
    names = ", ".join(option.label for option in options)
    return _wrapped(f"{title}: {names}", "  ")


def _lines(title: str, options: Sequence[Option]) -> list[str]:
    """Returns a line for each flag, cut where it is too long."""
    return [title, *(_cut(_sentence(option)) for option in options)]


def _sentences(title: str, options: Sequence[Option]) -> list[str]:
    """Returns the first sentence about each flag."""
    indent = " " * (_NAMES_WIDTH + 3)
    lines = (_wrapped(_sentence(option), indent) for option in options)
    return [title, *(line for wrapped in lines for line in wrapped)]


def full(doc: str, parts: Sequence[Part], more: Sequence[tuple[str, str]]) -> str:
    """Returns the help with all about each flag.

    Args:
        doc, parts: See the module.
        more: Names and texts of the flags of every command.
    """
    lines = [doc.strip()]
    for title, options in parts:
        lines += ["", f"{title}:"]
        for option in options:
            lines += _wrapped(f"{_name(option)}: {_text(option)}", "      ", "  ")
    lines += ["", "Flags of every command:"]
    for name, text in more:
        lines += _wrapped(f"--{name}: {text}", "      ", "  ")
    return "\n".join(lines)


def table(parts: Sequence[Part]) -> str:
    """Returns all about each flag as a table in Markdown, for the documents."""
    lines = ["| flag | meaning |", "|---|---|"]
    for title, options in parts:
        lines.append(f"| **{title}** | |")
        for option in options:
            cells = (f"`{_name(option)}`", _text(option))
            escaped = [cell.replace("|", "\\|") for cell in cells]
            lines.append(f"| {escaped[0]} | {escaped[1]} |")
    return "\n".join(lines)


def _head(doc: str) -> list[str]:
    """Returns the first line of a docstring, and the examples below it."""
    lines = doc.strip().splitlines()
    examples: list[str] = []
    for line in lines[1:]:
        if line.startswith("  "):
            examples.append(line)
        elif examples:
            break
    first = _wrapped(lines[0], "")
    return [*first, "", *examples] if examples else first


def _prose(doc: str) -> list[list[str]]:
    """Returns the paragraphs below the examples, in lines."""
    paragraphs = doc.strip().split("\n\n")[1:]
    texts = (text for text in paragraphs if not text.startswith("  "))
    return [_wrapped(text, "") for text in texts]


def _name(option: Option) -> str:
    if option.about.is_argument:
        return option.shown
    if option.is_positional:
        return f"[--{option.name}=]{option.shown}"
    if option.is_switch:
        return f"--[no]{option.name}"
    return f"--{option.name}={option.shown}"


def _sentence(option: Option) -> str:
    """Returns the name of a flag, the first sentence of its help, and its default."""
    name = _name(option).replace("[no]", "no" if option.default is True else "")
    sentence = re.split(r"(?<=[.?])\s", option.about.help, maxsplit=1)[0]
    default = _default(option)
    return f"  {name:{_NAMES_WIDTH}} {sentence}{default and f' [{default}]'}"


def _cut(line: str) -> str:
    """Returns a line of at most `WIDTH` characters, cut after a word."""
    if len(line) <= WIDTH:
        return line
    return line[: WIDTH - 3].rpartition(" ")[0].rstrip(",;:") + " ..."


def _default(option: Option) -> str:
    if option.is_required or option.default in (None, False, (), "", {}):
        return ""
    return "" if option.is_switch else option.text_of(option.default)


def _text(option: Option) -> str:
    """Returns the whole help of a flag with its choices and its default."""
    text = option.about.help
    if option.choices and len(option.shown) > 0 and "|" not in option.shown:
        text += f" Choices: {', '.join(option.choices)}."
    default = _default(option)
    return f"{text} (default: {default})" if default else text


def _wrapped(text: str, indent: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )

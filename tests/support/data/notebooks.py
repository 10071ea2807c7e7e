"""A notebook of a page: the same text, code and outputs.

In: the Markdown of a page whose blocks are Python. Out: the JSON of a notebook, with a
cell for each block, and its output.
"""

import json
import re
from typing import Any

_CODE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.S)


def of_page(text: str) -> str:
    """Returns the notebook of a page.

    Args:
        text: Markdown, with blocks ```python and the ```text that they print.
    """
    cells: list[dict[str, Any]] = []
    end = 0
    for block in _CODE.finditer(text):
        cells += _prose(text[end : block.start()])
        code, printed = block.groups()
        outputs = []
        if printed:
            stream = {"output_type": "stream", "name": "stdout"}
            outputs = [{**stream, "text": _lines(printed)}]
        source = {"source": _lines(code), "metadata": {}, "execution_count": None}
        cells.append({"cell_type": "code", **source, "outputs": outputs})
        end = block.end()
    cells += _prose(text[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": [{"id": f"cell-{i}", **cell} for i, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _prose(text: str) -> list[dict[str, Any]]:
    if not text.strip():
        return []
    return [{"cell_type": "markdown", "metadata": {}, "source": _lines(text)}]


def _lines(text: str) -> list[str]:
    """Returns the lines of a cell, whose last one has no line break."""
    return text.strip("\n").splitlines(keepends=True)

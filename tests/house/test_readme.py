"""The code in README runs."""

import pathlib
import re

from tests.house.code import ROOT


def test_readme_python_runs(data_dir: pathlib.Path) -> None:
    """Each python block of README, with the data set of the tests for "DIR"."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)

    assert blocks
    for block in blocks:
        code = block.replace('"DIR"', repr(str(data_dir)))
        exec(
            compile(
                code.replace("batch_size=256", "batch_size=4"), "README.md", "exec"
            ),
            {},
        )

"""setup.cfg, Makefile and documents name the same versions of Python.

tests/system/test_pins.py asks the index whether the pinned packages fit them.
"""

import configparser
import re

from tests.house.code import ROOT


def test_setup_makefile_and_documents_name_these_pythons() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")

    assert settings["options"]["python_requires"] == ">=3.11,<3.13"
    assert "(3, 11) <= v < (3, 13)" in (ROOT / "Makefile").read_text()
    for name in ("README.md", "BUILD.md", "docs/start.md"):
        found = re.findall(r"3\.\d+ (?:to|or) 3\.\d+", (ROOT / name).read_text())
        assert {*found} == {"3.11 or 3.12"}

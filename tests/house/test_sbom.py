"""tests.house.sbom lists the reference stack, each package once."""

import re

from tests.house import sbom
from tests.house.code import ROOT


def test_each_pinned_package_that_is_installed_is_listed_with_its_version() -> None:
    found = {each["name"]: each["version"] for each in sbom.components()}
    text = (ROOT / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M))
    pinned = {re.sub(r"[-_.]+", "-", n).lower(): v for n, v in pins.items()}

    assert {"tensorflow", "duckdb", "pillow", "numpy"} <= {*found}
    assert len(found) == len(sbom.components())
    # Other packages bring copies of small ones, or another TensorFlow is tested.
    same = [
        name for name in found.keys() & pinned.keys() if found[name] == pinned[name]
    ]
    assert len(same) > len(found) / 2

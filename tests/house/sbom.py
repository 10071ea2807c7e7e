"""The software that an environment has: `python -m tests.house.sbom` prints CycloneDX.

In: the installed packages. Out: JSON of CycloneDX 1.5 with name, version, license and
package URL of each.
"""

import importlib.metadata
import json
import re
from typing import Any


def components() -> list[dict[str, Any]]:
    """Returns the packages of this environment, sorted by name, each once."""
    found: dict[str, dict[str, Any]] = {}
    for package in importlib.metadata.distributions():
        about = package.metadata
        name = re.sub(r"[-_.]+", "-", about["Name"]).lower()
        text = about["License-Expression"] or about["License"] or ""
        licence = text.splitlines()[0][:80] if text else "unknown"
        found[name] = {
            "type": "library",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{package.version}",
            "licenses": [{"license": {"name": licence}}],
        }
    return [found[name] for name in sorted(found)]


def document() -> dict[str, Any]:
    """Returns the bill of materials."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": components(),
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=1))

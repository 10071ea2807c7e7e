"""benchmarks.planning.published: accelerators of a file."""

import json
import math
import pathlib
import re

import pytest

from benchmarks.models.accelerators import Accelerators, Figure, find
from benchmarks.planning import published


def _read(folder: pathlib.Path, settings: object) -> Accelerators:
    path = folder / "own.json"
    path.write_text(json.dumps(settings))
    return published.accelerators_with(str(path))


def test_accelerators_of_a_file(tmp_path: pathlib.Path) -> None:
    found = _read(
        tmp_path,
        {"own": {"source": "measured here", "train": {"vgg16": 3000}, "infer": {}}},
    )

    figure = Figure(
        accelerator="own",
        model="vgg16",
        images_per_second=3000.0,
        source="measured here",
    )
    assert found["own"] == {"train": {"vgg16": figure}, "infer": {}}
    assert find(found, "own", "vgg16", "train").step_seconds(300) == 0.1
    assert "h100" in found


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "must hold an accelerator"),
        ({"H100": {}}, "H100 is a built-in accelerator; choose another name"),
        ({"own": 7}, "own must be a table of source, train, infer, got 7"),
        ({"own": {"rate": 1}}, "own must be a table of source, train, infer, got {"),
        ({"own": {"train": {"vgg16": 1}}}, "own: source must be there, got None"),
        ({"own": {"source": 3}}, "own: source must be a text, got 3"),
        ({"own": {"source": "", "train": {"vgg16": 1}}}, "must be given, got an empty"),
        ({"own": {"source": "x"}}, "own: figures must be in train or infer, got none"),
        ({"own": {"source": "x", "train": [1]}}, "own: train must be an object, got"),
        (
            {"own": {"source": "x", "infer": {"vgg": 1}}},
            "own: a model must be one of googlenet, ",
        ),
        *(
            ({"own": {"source": "x", "train": {"vgg16": rate}}}, "own: ")
            for rate in (0, -1.5, math.inf, math.nan, True, "3000", None)
        ),
    ],
)
def test_a_wrong_file_is_an_error(
    settings: dict[str, object], message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match=f"own.json.*{re.escape(message)}"):
        _read(tmp_path, settings)

"""converters.jobs.expected: counts that are not those of ILSVRC-2012 are all named."""

import types

import pytest

from converters.inputs.listed import Listed
from converters.jobs import expected
from tfpipe.location.location import Location


def test_names_of_validation_are_needed_by_boxes_or_if_some_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expected, "_NUM_CLASSES", 1)
    monkeypatch.setattr(expected, "_COUNTS", {"validation": (2, 1, 2)})
    monkeypatch.setattr(expected, "_NUM_BOXES", 7)
    boxes = types.SimpleNamespace(num_boxes=7)
    for ends, boxed, faults in (
        ((1, 2), None, []),
        ((1, 3), None, ["_00000002"]),
        ((3, 4), None, []),
        ((3, 4), boxes, ["_00000001, ILSVRC2012_val_00000002"]),
        ((1, 2), types.SimpleNamespace(num_boxes=6), ["6 instead of 7"]),
    ):
        images = [
            types.SimpleNamespace(name=f"v/ILSVRC2012_val_{end:08d}.JPEG", num_bytes=1)
            for end in ends
        ]
        listed = Listed(Location("/x"), {"validation": {"n": images}}, boxes=boxed)
        found = list(expected._faults(listed, ["n"]))
        assert len(found) == len(faults), (ends, found)
        for fault, end in zip(found, faults, strict=True):
            assert fault.endswith(end)

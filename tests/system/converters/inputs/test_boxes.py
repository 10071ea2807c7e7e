"""Bounding boxes that several processes parse."""

import pathlib

import pytest

from converters.inputs import boxes
from tests.support.data.trees import SYNSETS, read_boxes
from tests.unit.converters.inputs.test_boxes import make_xml
from tests.unit.converters.inputs.test_tars import write_tar


def test_many_workers_find_what_one_finds(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "_CHUNK_FILES", 7)
    stems = [f"{SYNSETS[n % 4]}_{n}" for n in range(50)] + ["n99999999_1"]
    files = [
        (f"{stem}.xml", make_xml([(stem[:9], n, k, 100 + n, 90) for k in range(n % 3)]))
        for n, stem in enumerate(stems)
    ]
    write_tar(tmp_path / "ILSVRC2012_bbox_train_v2.tar", files)

    one, many = (read_boxes(tmp_path, num_workers=n) for n in (1, 3))

    assert one == many
    assert many.decisions == {"bbox_file_of_other_class": 1, "bbox_kept": 49}
    assert [len(many.of(stem)) for stem in stems[:50]] == [n % 3 for n in range(50)]


def test_bad_annotation_in_a_worker_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "_CHUNK_FILES", 1)
    files = [(f"{SYNSETS[0]}_{n}.xml", make_xml([])) for n in range(9)]
    files.append((f"{SYNSETS[0]}_9.xml", b"<annotation>"))
    write_tar(tmp_path / "ILSVRC2012_bbox_train_v2.tar", files)

    with pytest.raises(ValueError, match=r"_9\.xml in .* must be an annotation"):
        read_boxes(tmp_path, num_workers=2)

"""converters.checks.record: which values of one record are faults."""

import xxhash

from converters.checks import record
from tests.support.data.trees import make_jpeg
from tfpipe.shards import image_record
from tfpipe.shards.image_record import Box


def _faults(*boxes: Box) -> list[str]:
    data = image_record.encode_image(
        image_record.ImageRecord(
            encoded=make_jpeg(1),
            height=32,
            width=40,
            label=1,
            synset="n1",
            text="crane",
            filename="a.JPEG",
            boxes=boxes,
        )
    )
    row = record.CatalogRow(
        record=0,
        byte_offset=0,
        num_bytes=0,
        label=1,
        synset="n1",
        height=32,
        width=40,
        filename="a.JPEG",
        decision="rotated_exif",
        digest=xxhash.xxh3_128_hexdigest(make_jpeg(1)),
    )
    faults = record.schema_faults(
        b"".join(data), row, features=None, classes=[("n1", "crane")], label_base=1
    )
    return list(faults)


def test_a_box_may_reach_each_border_of_its_image() -> None:
    assert _faults((0.0, 0.0, 1.0, 1.0), (0.25, 0.5, 0.5, 0.75)) == []


def test_a_box_outside_of_its_image_is_a_fault() -> None:
    for side, name in enumerate(("xmin", "ymin", "xmax", "ymax")):
        for value in (-0.125, 1.125):
            sides = [0.25, 0.25, 0.75, 0.75]
            sides[side] = value
            xmin, ymin, xmax, ymax = sides
            assert _faults((xmin, ymin, xmax, ymax)) == [
                f"image/object/bbox/{name} must be 0 to 1, got [{value}]"
            ]

"""converters.inputs.archives.samples: images and classes in tars of any kind."""

import contextlib
import io
import json
import pathlib
import tarfile
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from converters.inputs.archives import samples
from converters.inputs.archives.readers import FoundImage
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import Meaning
from converters.inputs.patterns import Archive
from converters.inputs.reader import Workspace
from tfpipe.location.location import Location


def tar_of(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    """A tar with files, or with members of any type."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return name, info


def test_case_of_a_part_does_not_matter() -> None:
    """As WebDataset reads tars; names of images stay."""
    data = tar_of(("a/B.JPG", b"image"), ("a/B.Cls", b"cat"), ("a/b.Left.PNG", b"x"))

    (found,) = listed(data).items
    assert (found.class_name, found.image.name) == ("cat", "a/B.JPG")
    assert listed(data, image_part="left.png").left_out == [
        LeftOut("a/B", Reason.NO_IMAGE),
        LeftOut("a/b", Reason.NO_LABEL),
    ]
    with pytest.raises(ValueError, match=r"got a\.jpg twice"):
        listed(tar_of(("a.jpg", b"x"), ("a.JPG", b"y")))


class Contents(NamedTuple):
    """The images of a tar with their classes, and the names left out."""

    items: list[FoundImage]
    left_out: list[LeftOut]


def listed(data: bytes, image_part: str | None = None, **rule: Any) -> Contents:
    options = {"image_part": image_part, "on_null": "skip", **rule}
    reader = samples.TarReader(input=["x.tar"], **options)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "x.tar").write_bytes(data)
        archive = Archive("train", "x.tar", len(data))
        results = [*reader.read_archive(Location(folder), archive)]
    left_out = [each for each in results if isinstance(each, LeftOut)]
    return Contents(
        [each for each in results if not isinstance(each, LeftOut)], left_out
    )


def found(data: bytes, contents: Contents) -> list[tuple[str, str, bytes]]:
    return [
        (image.name, label, data[image.offset : image.offset + image.num_bytes])
        for label, image, _ in contents.items
    ]


def left(contents: Contents) -> list[tuple[str, str]]:
    return [(item.name, item.reason) for item in contents.left_out]


def test_parts_of_a_key_are_one_sample_wherever_they_are() -> None:
    data = tar_of(
        ("./a/x.jpg", b"one"),
        ("a/y.cls", b" 7\n"),
        ("a/x.cls", "\ufeffcat".encode()),
        ("a/y.seg.png", b"two"),
        ("a/y.txt", b"caption"),
        ("b.v1/x.JPEG", b""),
        ("b.v1/x.cls", "é/ü".encode()),
    )

    contents = listed(data)

    assert found(data, contents) == [
        ("a/x.jpg", "cat", b"one"),
        ("a/y.seg.png", "7", b"two"),
        ("b.v1/x.JPEG", "é/ü", b""),
    ]
    assert left(contents) == []


def test_every_member_that_is_not_used_is_named_with_its_reason() -> None:
    label = ("ok.cls", b"1")
    data = tar_of(
        ("ok.jpg", b"image"),
        label,
        ("/etc/x.jpg", b"absolute"),
        ("a/../x.jpg", b"up"),
        ("a//x.jpg", b"empty part"),
        special("s.jpg", tarfile.SYMTYPE, "/etc/passwd"),
        special("d.jpg", tarfile.CHRTYPE),
        special("p.jpg", tarfile.FIFOTYPE),
        special("h.jpg", tarfile.LNKTYPE, "gone.jpg"),
        ("._ok.jpg", b"metadata of macOS"),
        ("README", b"no part"),
        ("two.jpg", b""),
        ("two.png", b""),
        ("two.cls", b"1"),
        ("bare.jpg", b""),
        ("words.cls", b"1"),
        *[
            part
            for number, content in enumerate(
                [b"\xff", b" ", b"x" * 5000, b"a\0b", b"x" * 1001, b"-1\n"]
            )
            for part in ((f"bad{number}.jpg", b""), (f"bad{number}.cls", content))
        ],
    )

    contents = listed(data)

    assert found(data, contents) == [("ok.jpg", "1", b"image")]
    assert left(contents) == [
        ("/etc/x.jpg", Reason.UNSAFE_NAME),
        ("a/../x.jpg", Reason.UNSAFE_NAME),
        ("a//x.jpg", Reason.UNSAFE_NAME),
        ("s.jpg", Reason.NOT_A_FILE),
        ("d.jpg", Reason.NOT_A_FILE),
        ("p.jpg", Reason.NOT_A_FILE),
        ("._ok.jpg", Reason.OTHER_NAME),
        ("README", Reason.OTHER_NAME),
        ("h.jpg", Reason.NOT_A_FILE),
        ("two", Reason.SEVERAL_IMAGES),
        ("bare", Reason.NO_LABEL),
        ("words", Reason.NO_IMAGE),
        ("bad0", Reason.BAD_LABEL),
        ("bad1", Reason.NO_LABEL),
        ("bad2", Reason.BAD_LABEL),
        ("bad3", Reason.BAD_LABEL),
        ("bad4", Reason.BAD_LABEL),
        ("bad5", Reason.NO_LABEL),
    ]
    assert listed(data, "png").items[0][1].name == "two.png"


@pytest.mark.parametrize(
    ("content", "key", "expected"),
    [
        ({"label": 12}, "label", "12"),
        ({"meta": {"class": "cat"}}, "meta.class", "cat"),
        ({"label": None}, "label", Reason.NO_LABEL),
        ({"other": 1}, "label", Reason.NO_LABEL),
        ([1], "label", Reason.NO_LABEL),
        ({"label": True}, "label", Reason.BAD_LABEL),
        ({"label": 1.5}, "label", Reason.FLOAT_LABEL),
        ({"label": ["a"]}, "label", "a"),
        ({"label": ["a", "b"]}, "label", Reason.SEVERAL_LABELS),
        (b"{", "label", Reason.BAD_LABEL),
        (b"[" * 100_000, "label", Reason.BAD_LABEL),
        (b'{"label": ' + b"9" * 5000 + b"}", "label", Reason.BAD_LABEL),
    ],
)
def test_a_class_comes_from_json(content: Any, key: str, expected: str) -> None:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()

    contents = listed(
        tar_of(("k.jpg", b""), ("k.json", text)), label_from="json", label_key=key
    )

    got = [label for label, *_ in contents.items]
    assert got + [item.reason for item in contents.left_out] == [expected]


@pytest.mark.parametrize(
    ("words", "said", "splits", "num_left_out"),
    [
        (("Train", "VALID", "testing"), {}, ["train", "validation", "test"], 0),
        (("train", None, "val"), {}, ["train", "validation"], 1),
        ((None, None, None), {}, ["test"], 0),
        (("train", "extra", "val"), {}, ["test"], 0),
        (("train", "val", "val"), {"split": "test"}, ["test"], 0),
        (("train", "val", "val"), {"split_names": False}, ["train"], 0),
    ],
)
def test_a_key_split_says_the_splits_if_its_values_do(
    tmp_path: pathlib.Path,
    words: Sequence[str | None],
    said: dict[str, Any],
    splits: list[str],
    num_left_out: int,
) -> None:
    parts = []
    for number, word in enumerate(words):
        own = {} if word is None else {"split": word}
        text = json.dumps({"label": "a", **own}).encode()
        parts += [(f"{number}.jpg", b"x"), (f"{number}.json", text)]
    (tmp_path / "test.tar").write_bytes(tar_of(*parts))
    reader = samples.TarReader(input=[f"{tmp_path}/test.tar"], label_from="json")

    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=tmp_path / "work", stack=stack)
        result = reader.list_images(Meaning(**said), workspace)

    assert [*result.splits] == splits
    assert len(result.left_out) == num_left_out
    assert len(result.warnings) == ("extra" in words)


def test_a_class_comes_from_the_key() -> None:
    data = tar_of(("n1/x_1.jpg", b""), ("n2_7_a.jpg", b""), ("none.jpg", b""))

    contents = listed(data, label_from="key")

    assert [label for label, *_ in contents.items] == ["n1", "n2"]
    assert left(contents) == [("none", Reason.NO_LABEL)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (tar_of(("x.jpg", b"a"), ("./x.jpg", b"b")), "x.jpg twice"),
        (tar_of(("x.cls", b"1"), ("x.cls", b"2")), "x.cls twice"),
        (tar_of(("x.jpg", b"a" * 2000))[:1500], "is cut short"),
        (b"\x1f\x8b" + bytes(600), "is compressed"),
        (b"no tar" * 200, "must be a tar"),
        (b"", "is cut short"),
    ],
)
def test_a_tar_that_cannot_be_trusted_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        listed(data)

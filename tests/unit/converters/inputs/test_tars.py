"""converters.inputs.tars, devkit: the official archives, read in place."""

import contextlib
import gzip
import io
import itertools
import os
import pathlib
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from converters.inputs import classes, devkit, ilsvrc, patterns, tars
from converters.inputs.archives import readers, samples
from converters.inputs.image import read_image
from converters.inputs.reader import Workspace
from converters.jobs import again, plan, write_shard
from converters.jobs.job import Job
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import SYNSETS, folder_at, make_tree
from tfpipe.location.location import Location

CLASSES = classes.imagenet_classes()
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
LONG_NAME = "long/" * 30 + "n" * 120 + ".JPEG"


def write_tar(
    path: pathlib.Path,
    files: Sequence[tuple[str, bytes]],
    *,
    format: int = tarfile.GNU_FORMAT,
    mode: str = "w",
) -> pathlib.Path:
    """A tar with these members."""
    with tarfile.open(path, mode, format=format) as tar:  # type: ignore[call-overload]
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def _members(
    path: pathlib.Path, *, part: tars.Member | None = None
) -> Iterator[tars.Member]:
    return tars.read_members(folder_at(path.parent), path.name, part=part)


def _streamed(path: pathlib.Path) -> Iterator[tuple[str, bytes | None]]:
    return tars.stream_files(folder_at(path.parent), path.name)


def pack_train(root: pathlib.Path, *, nested: bool) -> None:
    """Turns train/ into a tar of tars, or into a folder of tars; in reverse order."""
    outer = []
    for folder in sorted((root / "train").iterdir(), reverse=True):
        files = [(p.name, p.read_bytes()) for p in sorted(folder.iterdir())]
        tar = write_tar(root / "train" / f"{folder.name}.tar", files[::-1])
        shutil.rmtree(folder)
        outer.append((tar.name, tar.read_bytes()))
    if nested:
        write_tar(root / ilsvrc.TRAIN_TAR, outer)
        shutil.rmtree(root / "train")


def pack_validation(root: pathlib.Path) -> None:
    files = [(p.name, p.read_bytes()) for p in sorted((root / "val").iterdir())]
    write_tar(root / ilsvrc.VALIDATION_TAR, files)
    shutil.rmtree(root / "val")


def _contents(root: pathlib.Path) -> dict[str, list[tuple[str, int, bytes]]]:
    tree = read_ilsvrc(root)
    return {
        split: [
            (i.name, i.class_index, read_image(Location(str(root)), i)) for i in found
        ]
        for split, found in tree.splits.items()
    }


def _shards(root: pathlib.Path, out: pathlib.Path) -> dict[str, bytes]:
    """Returns the bytes of all shards and of their catalog rows."""
    out.mkdir()
    splits = read_ilsvrc(root).splits
    plans = plan.make_plan(splits, {"train": 2, "validation": 1}, seed=0)
    job = Job(
        command="test",
        name="imagenet",
        input_dir=Location(str(root)),
        output_dir=out,
        plans=plans,
        classes=CLASSES,
        fsync=False,
    )
    for item in plans:
        write_shard.write_shard(job, out, write_shard.task_of(job, item))
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("packed", ["nested", "folder of tars", "validation", "all"])
def test_tars_give_the_images_and_shards_of_the_tree(
    tmp_path: pathlib.Path, packed: str
) -> None:
    root = make_tree(tmp_path / "raw", num_images=10, num_validation_images=3)
    contents, written = _contents(root), _shards(root, tmp_path / "tree")

    if packed in ("nested", "folder of tars", "all"):
        pack_train(root, nested=packed != "folder of tars")
    if packed in ("validation", "all"):
        pack_validation(root)

    assert _contents(root) == contents
    assert _shards(root, tmp_path / "tars") == written


def test_class_folders_and_class_tars_mix(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path, num_images=8)
    contents = _contents(root)
    shutil.copytree(root / "train" / SYNSETS[1], tmp_path / "aside" / SYNSETS[1])
    pack_train(root, nested=False)
    (root / "train" / f"{SYNSETS[1]}.tar").unlink()
    os.rename(tmp_path / "aside" / SYNSETS[1], root / "train" / SYNSETS[1])

    assert _contents(root) == contents


def test_images_in_tars_are_listed_again_for_a_check(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path, num_images=6, num_validation_images=2)
    pack_train(root, nested=True)
    pack_validation(root)
    splits = read_ilsvrc(root).splits.values()
    images = {image.name: image for images in splits for image in images}

    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=tmp_path, stack=stack)
        made_by = {"command": "converters.imagenet"}
        listed = again.list_again(made_by, str(root), (), (), workspace)

    images = {name: i._replace(class_index=-1) for name, i in images.items()}
    assert listed.find_all([*images, "train/n1/no.JPEG"]) == images


@pytest.mark.parametrize("format", FORMATS)
def test_members_are_those_that_tarfile_finds(
    tmp_path: pathlib.Path, format: int
) -> None:
    names = [
        "a.JPEG",
        "b/c d'\"\n.JPEG",
        os.fsdecode(b"\xe9.JPEG"),
        "p/" * 60 + "x.JPEG",
    ]
    if format != tarfile.USTAR_FORMAT:
        names.append(LONG_NAME)
    files = [(name, name.encode(errors="replace") * 50) for name in names]
    files.append(("empty.JPEG", b""))
    path = write_tar(tmp_path / "x.tar", files, format=format)

    found = list(_members(path))

    with tarfile.open(path) as tar:
        expected = [(m.name, m.offset_data, m.size) for m in tar.getmembers()]
    assert [(m.name, m.offset, m.num_bytes) for m in found] == expected
    assert [m.name for m in found] == [name for name, _ in files]


def test_folders_are_skipped_and_links_are_no_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in [
            ("folder", tarfile.DIRTYPE),
            ("symbolic.JPEG", tarfile.SYMTYPE),
            ("hard.JPEG", tarfile.LNKTYPE),
            ("file.JPEG", tarfile.REGTYPE),
            ("folder of an old tar/", tarfile.REGTYPE),
            ("content/", tarfile.REGTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type = kind
            content = b"not lost" if name == "content/" else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))

    found = {m.name: m.is_file for m in _members(path)}

    links, files = ("symbolic.JPEG", "hard.JPEG"), ("file.JPEG", "content/")
    assert found == dict.fromkeys(links, False) | dict.fromkeys(files, True)


def test_sizes_above_eight_gigabytes_are_read(tmp_path: pathlib.Path) -> None:
    """The octal field ends there; GNU tar uses base 256 then, and PAX a header."""
    size = 9 * 2**30
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("large.tar")
        info.size = size
        header = info.tobuf(format)
        path = tmp_path / f"{format}.tar"
        with open(path, "wb") as file:
            file.write(header)
            file.truncate(len(header) + size + 1024)  # a hole: takes no disk

        assert [m.num_bytes for m in _members(path)] == [size]


def test_streamed_members_have_their_bytes(tmp_path: pathlib.Path) -> None:
    files = [("a.xml", b"1"), (LONG_NAME, b"2" * 5000), ("empty", b""), ("c.xml", b"3")]
    packed = write_tar(tmp_path / "x.tar.gz", files, mode="w:gz")
    plain = write_tar(tmp_path / "x.tar", files)

    assert list(_streamed(packed)) == files
    assert list(_streamed(plain)) == files


FILES = [("a.JPEG", b"a" * 700), ("b.JPEG", b"b" * 700)]


def _cut(num_bytes: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:num_bytes]


def _flip_second_header(data: bytes) -> bytes:
    return data[:1536] + b"X" + data[1537:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (gzip.compress, r"x.tar is compressed \(gzip\).*Decompress it"),
        (lambda data: b"BZh91AY" + bytes(600), r"is compressed \(bzip2\)"),
        (lambda data: b"\xfd7zXZ\0" + bytes(600), r"is compressed \(xz\)"),
        (lambda data: b"some text " * 99, "x.tar must be a tar, got something else"),
        (_cut(0), "x.tar is cut short: it ends at byte 0 "),
        (_cut(600), "x.tar is cut short: it ends at byte 600 "),
        (
            _cut(1536),
            "cut short: it ends at byte 1,536 of the tar, before its end mark",
        ),
        (_cut(1600), "cut short: it ends at byte 1,600"),
        (_cut(3000), "cut short: it ends at byte 3,000"),
        (_cut(3072), "cut short: it ends at byte 3,072"),
        (_flip_second_header, "x.tar is damaged: no tar header at byte 1,536"),
    ],
)
def test_bad_tar_is_an_error_that_names_tar_and_byte(
    tmp_path: pathlib.Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = write_tar(tmp_path / "x.tar", FILES)
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(ValueError, match=message):
        list(_members(path))


def test_a_small_table_is_no_tar_that_is_cut_short(tmp_path: pathlib.Path) -> None:
    (tmp_path / "labels.csv").write_text("key,label\n")

    with pytest.raises(ValueError, match=r"must be a tar, got .*converters\.table"):
        list(_members(tmp_path / "labels.csv"))


@pytest.mark.parametrize(
    "field",
    [
        b"-0000001000\0",
        b"+0000001000\0",
        b"0_000001000\0",
        b"0o000000010\0",
        b"00000000xyz\0",
        b"\xff" * 11 + b"\0",  # -256 in base 256
    ],
)
def test_size_that_is_no_number_is_an_error(
    tmp_path: pathlib.Path, field: bytes
) -> None:
    block = bytearray(tarfile.TarInfo("a.JPEG").tobuf())
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / "x.tar"
    path.write_bytes(bytes(block) + bytes(2048))

    # At most ten members, because a reader that accepts the size may never end.
    with pytest.raises(ValueError, match=r"x.tar is damaged: the header at byte 0 gi"):
        list(itertools.islice(_members(path), 10))


@pytest.mark.parametrize("size", ["-1024", "1_0", "1e3", "", "9" * 5000])
def test_pax_size_that_is_no_number_is_an_error(
    tmp_path: pathlib.Path, size: str
) -> None:
    info = tarfile.TarInfo("a.JPEG")
    info.pax_headers = {"size": size}
    path = tmp_path / "x.tar"
    path.write_bytes(info.tobuf(tarfile.PAX_FORMAT) + bytes(2048))

    with pytest.raises(ValueError, match=r"x.tar is damaged: the header at byte "):
        list(itertools.islice(_members(path), 10))


def test_fault_of_an_inner_tar_names_both(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path, num_images=4)
    shutil.rmtree(root / "train")
    inner = write_tar(tmp_path / "inner", FILES).read_bytes()
    write_tar(root / ilsvrc.TRAIN_TAR, [(f"{SYNSETS[0]}.tar", inner[:1024])])

    message = f"{SYNSETS[0]}.tar in .*{ilsvrc.TRAIN_TAR} is cut short.*byte 1,024"
    with pytest.raises(ValueError, match=message):
        read_ilsvrc(root)


def _zero_second_header(data: bytes) -> bytes:
    return data[:1536] + bytes(512) + data[2048:]


READERS: dict[str, Callable[[pathlib.Path], list[str]]] = {
    "in place": lambda path: [each.name for each in _members(path)],
    "streamed": lambda path: [name for name, _ in _streamed(path)],
    "tar.gz": lambda path: [name for name, _ in _streamed(_packed(path))],
    "in a tar": lambda path: [each.name for each in _inner_members(path)],
    "WebDataset": lambda path: [image.name for _, image, _ in _samples(path)],
}


def _packed(path: pathlib.Path) -> pathlib.Path:
    packed = path.with_suffix(".tar.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def _inner_members(path: pathlib.Path) -> Iterator[tars.Member]:
    outer = write_tar(path.with_name("outer.tar"), [(path.name, path.read_bytes())])
    (part,) = _members(outer)
    return _members(outer, part=part)


def _samples(path: pathlib.Path) -> Sequence[readers.Found]:
    reader = samples.TarReader(input=[str(path)], label_from="key")
    archive = patterns.Archive("train", str(path), path.stat().st_size)
    return [*reader.read_archive(Location(str(path.parent)), archive)]


every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)
KEYED = [("x/a.jpg", b"a" * 700), ("x/b.jpg", b"b" * 700)]


@every_reader
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_zero_second_header, "end mark at byte 1,536 but goes on with .* byte 2,048"),
        (lambda data: data + data, "mark at byte 3,072 but .* byte 10,240.* with cat"),
        (lambda data: data[:3072] + bytes(2048) + b"x" * 512, "goes on .* byte 5,120"),
        (lambda data: data[:1536] + bytes(99_000), r"97,976 bytes of zeros, more than"),
        (lambda data: data + bytes(2 << 20), "bytes of zeros, more than fill a record"),
    ],
)
def test_tar_that_goes_on_after_its_end_is_an_error(
    tmp_path: pathlib.Path,
    read: Callable[[pathlib.Path], list[str]],
    damage: Callable[[bytes], bytes],
    message: str,
) -> None:
    path = write_tar(tmp_path / "x.tar", KEYED)
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(ValueError, match=rf"x\.tar.*{message}"):
        read(path)


@every_reader
@pytest.mark.parametrize("record", [512, 1024, 10_240, 1 << 17, 1 << 20])
def test_padding_of_a_tar_is_no_data(
    tmp_path: pathlib.Path, read: Callable[[pathlib.Path], list[str]], record: int
) -> None:
    path = write_tar(tmp_path / "x.tar", KEYED)
    data = path.read_bytes()[: 3072 + 1024]
    path.write_bytes(data + bytes(-len(data) % record))

    assert read(path) == ["x/a.jpg", "x/b.jpg"]


@pytest.mark.parametrize("cut", [20, 300])
def test_streamed_archive_that_is_cut_short_is_an_error(
    tmp_path: pathlib.Path, cut: int
) -> None:
    noise = bytes(zlib.crc32(bytes([n % 251, n // 251])) % 256 for n in range(3000))
    path = write_tar(tmp_path / "x.tar.gz", [("a", noise)], mode="w:gz")
    path.write_bytes(path.read_bytes()[:-cut])

    with pytest.raises(ValueError, match=r"x.tar.gz is damaged or cut short"):
        list(_streamed(path))


def test_sparse_member_is_an_error(tmp_path: pathlib.Path) -> None:
    info = tarfile.TarInfo("a.JPEG")
    info.type = tarfile.GNUTYPE_SPARSE
    path = tmp_path / "x.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))

    with pytest.raises(ValueError, match=r"a.JPEG is stored sparse.*without --sparse"):
        list(_members(path))


def _both_train(root: pathlib.Path) -> None:
    write_tar(root / ilsvrc.TRAIN_TAR, [])


def _both_validation(root: pathlib.Path) -> None:
    write_tar(root / ilsvrc.VALIDATION_TAR, [])


def _both_class(root: pathlib.Path) -> None:
    write_tar(root / "train" / f"{SYNSETS[0]}.tar", FILES)


def _name_twice(root: pathlib.Path) -> None:
    write_tar(root / "train" / "n01496331.tar", [FILES[0], ("other/a.JPEG", b"x")])


def _class_twice(root: pathlib.Path) -> None:
    shutil.rmtree(root / "train")
    inner = write_tar(root / "inner", FILES).read_bytes()
    write_tar(root / ilsvrc.TRAIN_TAR, [(f"{SYNSETS[0]}.tar", inner)] * 2)


def _flat_train(root: pathlib.Path) -> None:
    shutil.rmtree(root / "train")
    write_tar(root / ilsvrc.TRAIN_TAR, FILES)


def _unknown_class(root: pathlib.Path) -> None:
    write_tar(root / "train" / "cats.tar", FILES)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_both_train, r"img_train.tar or train/ but not both. Remove .*train to read"),
        (_both_validation, r"img_val.tar or val/ but not both. Remove .*val to read"),
        (_both_class, r"n01440764/ or n01440764.tar but not both. Remove one"),
        (_name_twice, r"n01496331.tar holds a.JPEG twice"),
        (_class_twice, r"img_train.tar holds n01440764.tar twice"),
        (_flat_train, r"img_train.tar must hold a tar for each class, got none"),
        (_unknown_class, r"not in the class list, the first is cats"),
    ],
)
def test_bad_set_of_tars_is_an_error(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    make_tree(tmp_path, num_images=4, num_validation_images=2)
    damage(tmp_path)

    with pytest.raises(ValueError, match=message):
        read_ilsvrc(tmp_path)


def test_other_names_in_tars_are_counted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train").mkdir()
    files = [*FILES, ("notes.txt", b""), ("._a.JPEG", b"x")]
    write_tar(tmp_path / "train" / f"{SYNSETS[0]}.tar", files)

    tree = read_ilsvrc(tmp_path)

    assert tree.ignored == {"other_name": 2}
    assert [i.num_bytes for i in tree.splits["train"]] == [700, 700]


# The classes of five images, by their numbers in the development kit, which are not in
# label order: the first four of SYNSETS, and the first one again.
TRUTH = "449\n450\n442\n443\n449\n"


def test_numbers_of_the_kit_are_those_of_the_official_ground_truth(
    tmp_path: pathlib.Path,
) -> None:
    """The first ten lines of the official file, and the classes of their images."""
    numbers = (490, 361, 171, 822, 297, 482, 13, 704, 599, 164)
    (tmp_path / devkit.TRUTH_NAME).write_text("".join(f"{n}\n" for n in numbers))
    names = [f"ILSVRC2012_val_{n:08d}.JPEG" for n in range(1, 11)]

    found = devkit.validation_synsets(folder_at(tmp_path), names, names)

    assert [found[name] for name in names] == [
        *("n01751748", "n09193705", "n02105855", "n04263257", "n03125729"),
        *("n01735189", "n02346627", "n02776631", "n03794056", "n02328150"),
    ]


@pytest.fixture(params=["folder", "beside", "archive"])
def kit_dir(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """Images whose labels are in the development kit only."""
    root = make_tree(tmp_path, num_images=4, num_validation_images=5)
    (root / devkit.LABELS_NAME).unlink()
    folder = {"beside": root}.get(request.param, root / devkit.FOLDER_NAME / "data")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / devkit.TRUTH_NAME).write_text(TRUTH)
    if request.param == "archive":
        with tarfile.open(root / f"{devkit.FOLDER_NAME}.tar.gz", "w:gz") as tar:
            tar.add(root / devkit.FOLDER_NAME, devkit.FOLDER_NAME)
        shutil.rmtree(root / devkit.FOLDER_NAME)
    return root


def test_ground_truth_goes_by_the_number_in_the_name(kit_dir: pathlib.Path) -> None:
    (kit_dir / "val" / "ILSVRC2012_val_00000003.JPEG").unlink()

    found = read_ilsvrc(kit_dir).splits["validation"]

    synsets = [CLASSES[image.class_index].synset for image in found]
    assert synsets == [SYNSETS[0], SYNSETS[1], SYNSETS[3], SYNSETS[0]]


def test_label_list_comes_before_the_kit(kit_dir: pathlib.Path) -> None:
    (kit_dir / devkit.LABELS_NAME).write_text(f"{SYNSETS[2]}\n" * 5)

    found = read_ilsvrc(kit_dir).splits["validation"]

    assert {image.class_index for image in found} == {2}


def test_name_that_the_ground_truth_cannot_label_is_an_error(
    kit_dir: pathlib.Path,
) -> None:
    path = kit_dir / "val" / "ILSVRC2012_val_00000001.JPEG"
    path.rename(path.with_name("ILSVRC2012_val_00000006.JPEG"))

    with pytest.raises(ValueError, match=r"got none for .*0006.JPEG.*is of .*0005\."):
        read_ilsvrc(kit_dir)


def test_ground_truth_with_a_number_of_no_class_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    root = make_tree(tmp_path, num_images=4, num_validation_images=1)
    (root / devkit.LABELS_NAME).unlink()
    (root / devkit.TRUTH_NAME).write_text("1001\n")

    with pytest.raises(ValueError, match=r"numbers of classes, 1 to 1,000, got 1001"):
        read_ilsvrc(root)


def test_archive_without_the_ground_truth_is_an_error(tmp_path: pathlib.Path) -> None:
    root = make_tree(tmp_path, num_images=4, num_validation_images=1)
    (root / devkit.LABELS_NAME).unlink()
    write_tar(root / f"{devkit.FOLDER_NAME}.tar.gz", [("meta.mat", b"x")], mode="w:gz")

    with pytest.raises(ValueError, match=r"truth.txt in .*t12.tar.gz is missing"):
        read_ilsvrc(root)

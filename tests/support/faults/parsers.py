"""The parsers of the product that read files of others, each with a reference parser.

In: the name of a parser. Out: sound inputs, the parser, the exceptions by which it may
refuse an input, and a function that compares it with another parser of the format.
"""

import collections
import dataclasses
import functools
import io
import json
import os
import pathlib
import tarfile
import tempfile
import traceback
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import google_crc32c
import numpy as np
import PIL.Image
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.python.lib.io import tf_record

import tfpipe
from benchmarks.planning import plan, published
from benchmarks.results import collection
from converters.images import jpeg_header, policy, prepare
from converters.inputs import boxes, labels, tars
from converters.inputs.archives import samples
from converters.inputs.archives.readers import NoClassError
from tests.support.data import odd_examples, sample_results
from tests.support.data.trees import SYNSETS, convert, make_jpeg, make_tree
from tests.unit.converters.inputs.test_boxes import make_xml
from tfpipe import errors, tuning
from tfpipe.cli import names
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.native import entry_file
from tfpipe.pictures import orientation
from tfpipe.shard_cache import pieces, store
from tfpipe.shards import example, generations, index, records, subset

REFUSED = object()
_Features = dict[str, tuple[Any, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parser:
    """A parser of the product, and how to attack it.

    Attributes:
        sound: Returns sound inputs.
        parse: Takes an input.
        refuses: Exceptions of an input that is not sound.
        differs: Takes an input and the result of `parse`, REFUSED if it was refused.
            Returns how the reference differs, "" if it does not.
        reference_name: Name of the reference; "" if the parser is only attacked.
        words: Words of the format.
        sealed: Gives an input the checksums that let it in.
        is_slow: Whether TensorFlow or DuckDB need a millisecond for an input.
    """

    sound: Callable[[], Sequence[bytes]]
    parse: Callable[[bytes], Any]
    refuses: tuple[type[BaseException], ...] = (ValueError,)
    differs: Callable[[bytes, Any], str] = lambda data, result: ""
    reference_name: str = ""
    words: Sequence[bytes] = ()
    sealed: Callable[[bytes], bytes] = bytes
    is_slow: bool = False


def fault(parser: Parser, data: bytes, counts: "collections.Counter[str]") -> str:
    """Gives an input to a parser; returns what is wrong, "" for nothing."""
    result: Any = REFUSED
    try:
        result = parser.parse(data)
        counts["accepted"] += 1
    except parser.refuses as error:
        if "\n" in str(error):
            return f"{type(error).__name__} of several lines {_where(error)}"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.80} {_where(error)}"
    return parser.differs(data, result)


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {pathlib.Path(frame.filename).name}:{frame.lineno} in {frame.name}"


@functools.cache
def _folder() -> pathlib.Path:
    kept = tempfile.TemporaryDirectory(prefix="parsers")
    _folder.kept = kept  # type: ignore[attr-defined]  # as long as the process
    return pathlib.Path(kept.name)


@functools.cache
def _data_set() -> pathlib.Path:
    """A data set of 12 images."""
    raw = make_tree(_folder() / "raw", num_images=12)
    convert(raw, _folder() / "set", num_train_shards=2)
    return _folder() / "set"


def _file(name: str, data: bytes) -> pathlib.Path:
    """Writes a file of its own into the folder of the process."""
    path = _folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _sound_file(name: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [(_data_set() / name).read_bytes()]


# TFRecord framing.


def _read_at(data: bytes) -> Callable[[int, int], bytes]:
    return lambda count, start: data[start : start + count]


def _records_of(data: bytes) -> list[records.Record]:
    return list(records.read_from(_read_at(data), len(data)))


def _with_crcs(data: bytes) -> bytes:
    """Gives half of the inputs the CRCs of their headers."""
    if zlib.crc32(data) & 1:
        return data
    fixed, at = bytearray(data), 0
    while at + records.HEADER_BYTES <= len(fixed):
        length = bytes(fixed[at : at + 8])
        crc = records._masked(google_crc32c.value(length))
        fixed[at + 8 : at + records.HEADER_BYTES] = crc
        size = int.from_bytes(length, "little")
        at += records.HEADER_BYTES + records.FOOTER_BYTES + size
    return bytes(fixed)


def _unlike_tensorflow(data: bytes, found: list[records.Record]) -> str:
    good = [each.data for each in found]
    stops = next((n for n, each in enumerate(found) if each.fault), len(found))
    if stops < len(found) and "cut short" in found[stops].fault:
        return ""  # TensorFlow allocates what the header says
    read: list[bytes] = []
    try:
        for each in tf_record.tf_record_iterator(str(_file("shard", data))):
            read.append(each)
        is_whole = True
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError):
        is_whole = False
    # TensorFlow takes a few bytes at the end for no record; tfpipe names them.
    if read != good[:stops] or (stops == len(found) and not is_whole):
        return f"TensorFlow reads {len(read)} records, tfpipe {stops}"
    return ""


# Example.

_KINDS = {"image": tf.string, "height": tf.int64, "label": tf.int64}


def _examples() -> list[bytes]:
    odd = list(odd_examples.ODD.values())
    return [data for data in odd if _example(data) is not None]


def _example(data: bytes) -> _Features | None:
    """Returns the wanted features, as tf.io.parse_example has them; None if one has
    another kind.
    """
    wanted: _Features = {}
    try:
        found = example.locate(data)
        features = {key: found.feature(key) for key in found.entries.keys() & _KINDS}
    except errors.BadRecordError:
        return None
    for key, kind in _KINDS.items():
        feature = features.get(key, example.Feature("empty", []))
        expected = "bytes" if kind == tf.string else "int64"
        if feature.kind not in (expected, "empty"):
            return None
        wanted[key] = tuple(feature.values)
    return wanted


def _unlike_parse_example(data: bytes, found: _Features | None) -> str:
    specs = {key: tf.io.VarLenFeature(kind) for key, kind in _KINDS.items()}
    try:
        parsed = tf.io.parse_single_example(data, specs)
        other = {key: tuple(parsed[key].values.numpy().tolist()) for key in _KINDS}
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # in its message
        other = None
    if other == found:
        return ""
    try:
        tf.train.Example.FromString(data)
    except DecodeError:  # TensorFlow reads beyond the ends that the bytes state
        return ""
    return f"TensorFlow has {other}, tfpipe {found}"[:200]


# JPEG and PNG.


def _as_jpeg(data: bytes) -> bytes:
    return jpeg_header.MAGIC + data[3:]


def _jpegs() -> list[bytes]:
    out = io.BytesIO()
    picture = PIL.Image.open(io.BytesIO(make_jpeg(1)))
    picture.save(out, "JPEG", progressive=True, exif=_exifs()[0])
    return [make_jpeg(0), make_jpeg(2, mode="L"), out.getvalue()]


def _unlike_libjpeg(data: bytes, header: Any) -> str:
    try:
        shape = tuple(tf.image.extract_jpeg_shape(data).numpy().tolist())
    except tf.errors.InvalidArgumentError:
        return ""
    if header is not REFUSED:
        stated = (header.height, header.width, header.num_components)
        return "" if shape == stated else f"libjpeg has {shape}, tfpipe {stated}"
    if shape[0] * shape[1] > 1 << 20:
        return ""
    try:
        tf.io.decode_jpeg(data)
    except tf.errors.InvalidArgumentError:
        return ""
    return f"libjpeg decodes {shape}, tfpipe refuses the header"


def _pngs() -> list[bytes]:
    outs = [io.BytesIO() for _ in range(3)]
    picture = PIL.Image.open(io.BytesIO(make_jpeg(1)))
    for out, mode in zip(outs, ("RGB", "P", "LA"), strict=True):
        picture.convert(mode).save(out, "PNG")
    return [out.getvalue() for out in outs]


def _prepared(data: bytes) -> prepare.Prepared:
    made = prepare.prepare(data, policy.Policy())
    if isinstance(made, prepare.Rejected):
        raise ValueError(made.reason)
    return made


def _with_chunk_crcs(data: bytes) -> bytes:
    """Gives the chunks of a PNG their CRCs."""
    fixed, at = bytearray(data), 8
    while at + 12 <= len(fixed):
        size = int.from_bytes(fixed[at : at + 4], "big")
        end = at + 8 + size
        fixed[end : end + 4] = zlib.crc32(fixed[at + 4 : end]).to_bytes(4, "big")
        if end + 4 > len(data):
            break
        at = end + 4
    return bytes(fixed[: max(len(data), 8)])


def _undecodable(_: bytes, made: Any) -> str:
    if made is REFUSED:
        return ""
    shape = tf.io.decode_jpeg(made.encoded, channels=3).shape
    stated = (made.height, made.width)
    return "" if tuple(shape[:2]) == stated else f"decodes to {shape}, not {stated}"


# EXIF.


def _exifs() -> list[bytes]:
    found = []
    for order in "<>":
        exif = PIL.Image.Exif()
        exif.endian = order
        exif[0x010E], exif[0x0112], exif[0x011A] = "a tag", 6, 72.0
        found.append(exif.tobytes())
    return found


def _unlike_pillow(data: bytes, turned: int) -> str:
    exif = PIL.Image.Exif()
    try:
        exif.load(data)
        value = exif.get(orientation.TAG, 1)
    except Exception:  # Pillow raises almost any exception on damaged EXIF data
        value = 1
    other = int(value) if value in orientation.TURNED else 1
    return "" if other == turned else f"Pillow has {other}, tfpipe {turned}"


# XML and tars.


def _xmls() -> list[bytes]:
    return [make_xml([(SYNSETS[0], 1, 2, 30, 40), (SYNSETS[1], 5, 6, 7, 8)])]


def _parse_xml(data: bytes) -> Any:
    counts = collections.Counter[str]()
    return boxes.parse_xml(data, f"{SYNSETS[0]}_1", SYNSETS, counts)


def _tars() -> list[bytes]:
    found = []
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
            for name in ("a/b.jpg", "é" * 20 + "/" + "n" * 90, "a/c.cls"):
                info = tarfile.TarInfo(name)
                info.size = len(name)
                tar.addfile(info, io.BytesIO(name.encode()))
        found.append(out.getvalue())
    return found


def _members(data: bytes) -> list[tars.Member]:
    tar = tars.Tar(lambda start, count: data[start : start + count], "x", 0, len(data))
    return list(tars.members(tar))


def _with_checksums(data: bytes) -> bytes:
    """Gives the headers of a tar their checksums."""
    fixed = bytearray(data)
    for at in range(0, len(fixed) - 511, 512):
        if fixed[at + 257 : at + 262] == b"ustar":
            fixed[at + 148 : at + 156] = b" " * 8
            total = sum(fixed[at : at + 512])
            fixed[at + 148 : at + 156] = b"%06o\0 " % total
    return bytes(fixed)


def _unlike_tarfile(data: bytes, found: Any) -> str:
    if found is REFUSED:
        return ""
    own = [(each.offset, each.num_bytes) for each in found if each.is_file]
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            files = (e for e in tar if e.isreg() and (e.size or e.name[-1:] != "/"))
            other = [(each.offset_data, each.size) for each in files]
    except tarfile.TarError:
        return ""
    # tarfile takes a damaged header for the end of the tar.
    return "" if own[: len(other)] == other else f"tarfile: {other}, tfpipe: {own}"


# Files of a data set.


def _index(data: bytes) -> index.Index:
    return index.parse.__wrapped__(data, "index.json")


def _unnoticed(data: bytes, found: Any) -> str:
    is_sound = data in _sound_file(index.INDEX_NAME)()
    if found is REFUSED or is_sound or b'"digest": "' not in data[-60:]:
        return ""
    return "" if index.change_of(data, "x") else "the digest hides a change"


def _log(data: bytes) -> Any:
    path = _file("grown/index.json", data)
    return generations.read_log(Files(str(path.parent)))


def _logs() -> list[bytes]:
    folder = generations.ShardFolder("gen-000001", "a" * 32, 3)
    return [generations._text(((folder,),))]


_COLUMNS = ("byte_offset", "num_bytes", "label", "synset")


def _catalog(data: bytes) -> dict[str, Any]:
    path = _file(f"catalog/{index.CATALOG_NAME}", data)
    found = index.load_catalog(path.parent, "train", _COLUMNS)
    return {name: column.tolist() for name, column in found.items()}


def _subsets() -> list[bytes]:
    known = index.load(_data_set())
    made = subset.Subset.of_records(known, "train", [0, 3, 7], weights=[1, 2, 0.5])
    subset.write(made, _folder() / "sound.parquet")
    return [(_folder() / "sound.parquet").read_bytes()]


def _entries() -> list[bytes]:
    return [entry_file.encode([b"abc", b"", b"defgh" * 9]), entry_file.encode([])]


def _unlike_select(data: bytes, tables: Any) -> str:
    if tables is REFUSED or not tables:
        return ""
    rows = range(min(len(tables), 20))
    chosen = entry_file.select(_file("entries", data), 0, rows)
    return "" if chosen == tables[: len(rows)] else "`select` reads other tables"


def _piece() -> bytes:
    return (_data_set() / "train-00000-of-00002").read_bytes()


@functools.cache
def _sizes() -> list[int]:
    return [each.num_bytes for each in _records_of(_piece())]


def _piece_fault(data: bytes) -> Any:
    whole = data.ljust(sum(_sizes()), b"\0")[: sum(_sizes())]
    if found := pieces.fault(memoryview(whole), _sizes()):
        raise ValueError(found[1])
    return whole


def _unlike_records(_: bytes, whole: Any) -> str:
    found = [] if whole is REFUSED else _records_of(whole)
    return "a damaged record passes" if any(each.fault for each in found) else ""


def _stores(name: str) -> Callable[[], Sequence[bytes]]:
    """Returns a function that makes an empty store of a shard cache."""

    def make() -> Sequence[bytes]:
        folder = _folder() / f"store-{name}"
        if not folder.exists():
            known = index.load(_data_set())
            offsets = index.load_catalog(_data_set(), "train", ["byte_offset"])
            shards = known.splits["train"]
            cut = pieces.cut(
                np.array([shard.num_records for shard in shards]),
                offsets["byte_offset"].astype(np.int64),
                np.array([shard.num_bytes for shard in shards]),
            )
            content = store.SplitContent(
                location=Location("x"), split="train", shards=shards, pieces=cut
            )
            store.create(folder, content)
        return [(folder / name).read_bytes()]

    return make


def _opened_store(name: str) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> None:
        store.PieceStore(_file(f"store-{name}/{name}", data).parent).close()

    return parse


# States, results, settings.


def _state(data: bytes) -> tfpipe.State:
    return tfpipe.State.from_json(data.decode(errors="replace"))


def _unlike_itself(_: bytes, state: Any) -> str:
    if state is REFUSED or tfpipe.State.from_json(state.to_json()) == state:
        return ""
    return "the state changes when it is written again"


def _states() -> list[bytes]:
    made = tfpipe.State(epoch=1, step=2, num_ranks=2, phases=((2, 8, ()),), digest="a")
    return [made.to_json().encode()]


def _results() -> list[bytes]:
    kinds = sample_results.every_kind().values()
    return [json.dumps(each).encode() for each in kinds]


def _result(data: bytes) -> Any:
    read = collection.read([_file("results/a.json", data)])
    for each in read.results:
        _ = each.faults, each.gates, each.kind, each.data, each.cache, each.hosts
        _ = each.accelerator, each.started, each.options
        _ = json.dumps(dataclasses.asdict(each.values))
    for group in read.groups:
        _ = [collection.rates(each) for each in group.results]


def _setting(suffix: str) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        path = _file(f"settings{suffix}", data)
        return plan.read_file(str(path))

    return parse


def _accelerators(data: bytes) -> Any:
    return published.accelerators_with(str(_file("accelerators.json", data)))


_ACCELERATOR = {"X": {"source": "s", "train": {"resnet50": 5.0}, "infer": {}}}


def _words(data: bytes) -> Any:
    """Gives words to the command that the first byte names."""
    first, *words = data.decode(errors="surrogateescape").split("\0")
    commands = _commands()
    command = commands[sum(first.encode(errors="replace")) % len(commands)]
    return command.parse(words)


@functools.cache
def _commands() -> list[Any]:
    os.chdir(_folder())  # a command may look whether a file is there
    return [command for _, command in names.commands_of("")]


def _lines() -> list[bytes]:
    flags = [b"--input_dir=a", b"--output_dir=b", b"--seed=3", b"--num_workers=2"]
    lines = [bytes([n]) + b"\0" + b"\0".join(flags) for n in range(len(_commands()))]
    return [line for line in lines if _is_accepted(line)]


def _is_accepted(line: bytes) -> bool:
    try:
        _words(line)
    except ValueError:
        return False
    return True


def _class(data: bytes) -> tuple[str, str | None]:
    return samples._in_json(data, ["a", "b"])


_JSON = (b"[", b'{"a":', b"{", b"}", b'"', b"null", b"true", b"1", b"1e3", b",", b":")
_TOML = (b"[a]\n", b"[[a]]\n", b"a=", b"{a=", b"1979-05-27", b"'''", b"0x", b"inf")
_XML = (b"<object>", b"</object>", b"<!DOCTYPE a [", b'<!ENTITY a "b">', b"&a;", b"<a>")
_BAD_PARQUET = (errors.BadIndexError, errors.BadSubsetError)

PARSERS: dict[str, Parser] = {
    "tfrecord": Parser(
        is_slow=True,
        sound=lambda: [_piece()],
        parse=_records_of,
        differs=_unlike_tensorflow,
        reference_name="TensorFlow",
        sealed=_with_crcs,
    ),
    "example": Parser(
        is_slow=True,
        sound=_examples,
        parse=_example,
        differs=_unlike_parse_example,
        reference_name="tf.io.parse_example",
    ),
    "jpeg": Parser(
        is_slow=True,
        sound=_jpegs,
        parse=jpeg_header.read_header,
        refuses=(jpeg_header.BadImageError,),
        differs=_unlike_libjpeg,
        reference_name="libjpeg-turbo",
        sealed=_as_jpeg,
    ),
    "png": Parser(
        is_slow=True,
        sound=_pngs,
        parse=_prepared,
        differs=_undecodable,
        reference_name="TensorFlow decodes what is stored",
        sealed=_with_chunk_crcs,
    ),
    "exif": Parser(
        sound=_exifs,
        parse=lambda data: orientation.read(data, b""),
        differs=_unlike_pillow,
        reference_name="Pillow",
    ),
    "xml": Parser(
        sound=_xmls,
        parse=_parse_xml,
        refuses=(SyntaxError, ValueError, LookupError),
        words=_XML,
    ),
    "tar": Parser(
        sound=_tars,
        parse=_members,
        differs=_unlike_tarfile,
        reference_name="tarfile",
        sealed=_with_checksums,
    ),
    "index": Parser(
        sound=_sound_file(index.INDEX_NAME),
        parse=_index,
        refuses=(errors.BadIndexError,),
        differs=_unnoticed,
        reference_name="its own digest",
        words=_JSON,
    ),
    "generations": Parser(
        sound=_logs, parse=_log, refuses=(errors.BadIndexError,), words=_JSON
    ),
    "catalog": Parser(
        is_slow=True,
        sound=_sound_file(index.CATALOG_NAME),
        parse=_catalog,
        refuses=_BAD_PARQUET,
    ),
    "subset": Parser(
        is_slow=True,
        sound=_subsets,
        parse=lambda data: subset.read(_file("subset.parquet", data)),
        refuses=_BAD_PARQUET,
    ),
    "entry_points": Parser(
        sound=_entries,
        parse=entry_file.decode,
        differs=_unlike_select,
        reference_name="entry_file.select",
    ),
    "piece": Parser(
        sound=lambda: [_piece()],
        parse=_piece_fault,
        differs=_unlike_records,
        reference_name="records.read",
    ),
    "manifest": Parser(
        sound=_stores("manifest.json"),
        parse=_opened_store("manifest.json"),
        refuses=store.NOT_WHOLE,
        words=_JSON,
    ),
    "layout": Parser(
        sound=_stores("layout.npy"),
        parse=_opened_store("layout.npy"),
        refuses=store.NOT_WHOLE,
    ),
    "state": Parser(
        sound=_states,
        parse=_state,
        differs=_unlike_itself,
        reference_name="its own text",
        words=_JSON,
    ),
    "result": Parser(is_slow=True, sound=_results, parse=_result, words=_JSON),
    "tuning": Parser(
        sound=lambda: [b'{"format": 1, "made_for": {}, "tuning": {}}'],
        parse=lambda data: tuning.read_saved(_file("tuning.json", data)),
        words=_JSON,
    ),
    "json": Parser(
        sound=lambda: [b'{"models": ["tiny"], "batch_sizes": [4, 8]}'],
        parse=_setting(".json"),
        words=_JSON,
    ),
    "toml": Parser(
        sound=lambda: [b'models = ["tiny"]\nbatch_sizes = [4, 8]\n'],
        parse=_setting(".toml"),
        words=_TOML,
    ),
    "accelerators": Parser(
        sound=lambda: [json.dumps(_ACCELERATOR).encode()],
        parse=_accelerators,
        words=_JSON,
    ),
    "label_map": Parser(
        sound=lambda: [b"1 cat\n2 dog\n", "a b\né\n".encode()],
        parse=lambda data: labels.read_label_map(_file("map.txt", data), None),
    ),
    "class": Parser(
        sound=lambda: [b'{"a": {"b": "cat"}}', b'{"a": {"b": 7}}'],
        parse=_class,
        refuses=(NoClassError,),
        words=_JSON,
    ),
    "flags": Parser(
        is_slow=True,
        sound=_lines,
        parse=_words,
        refuses=(ValueError, OSError, errors.TfpipeError),
        words=(b"--", b"\0", b"=", b",", b"--no", b"://", b"\0--help", b"~", b"{"),
    ),
}

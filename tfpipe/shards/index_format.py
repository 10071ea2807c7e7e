"""index.json as text: encoded in one fixed way, and decoded with checks.

In: an `Index`, or the document in an index.json. Out: its text, or the `Index`. Each
index has exactly one text, which holds a digest of itself, so that a change of any byte
is detected. Older files without that digest are read too. Opens no file.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import xxhash

FORMAT_VERSION = 1
DIGEST_ALGORITHM = "xxh3_128"

_DIGEST = "digest"
_FILES = "files"
# Names of JSON types in errors.
_TYPE_NAMES = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}
_MAX_NUMBER = 2**63 - 1
_SHOWN = 60
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def require_base_name(name: object) -> None:
    """Checks that a name is a plain file name, without a folder and a leading dot.

    Files are read, replaced and removed by names from the index: `../x` and `/x` must
    not reach other folders. Files that start with a dot never belong to a data set.

    Raises:
        ValueError: If the name is not plain.
    """
    plain = isinstance(name, str) and name and not name.startswith(".")
    if not plain or "/" in str(name) or "\0" in str(name):
        raise ValueError(
            "a file of a data set must have a plain name, without a folder and without "
            f"a dot in front, got {_shown(name)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard file: its name, size and the digest of its bytes.

    Raises:
        ValueError: If the name is not a plain file name, or a value has another type.
    """

    name: str
    num_records: int
    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        require_base_name(self.name)
        _require_number(self.num_records, "'num_records'")
        _require_number(self.num_bytes, "'num_bytes'")
        _typed(self.digest, str, "'digest'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file beside the shards: its size and the digest of its bytes.

    Raises:
        ValueError: If a value has another type.
    """

    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        _require_number(self.num_bytes, "'num_bytes'")
        _typed(self.digest, str, "'digest'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """The content of index.json.

    Attributes:
        name: Name of the data set.
        label_base: Label on disk of the first class.
        classes: (synset, text) of each class, in label order.
        splits: Shards of each split, in order.
        made_by: Command, version, options and decisions that made the data set.
        files: The catalog and the side files by their paths in the data set; None if
            an older version wrote the index, which did not list them.
    """

    name: str
    label_base: int
    classes: tuple[tuple[str, str], ...]
    splits: Mapping[str, tuple[Shard, ...]]
    made_by: Mapping[str, Any]
    files: Mapping[str, File] | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes; some may have no records."""
        return len(self.classes)

    def num_records(self, split: str) -> int:
        """Returns the number of records of a split."""
        return sum(shard.num_records for shard in self.splits[split])


def encode(index: Index) -> str:
    """Returns the text of an index.json, its own digest in the last line but one."""
    document = {
        "format_version": FORMAT_VERSION,
        "name": index.name,
        "label_base": index.label_base,
        "digest_algorithm": DIGEST_ALGORITHM,
        "splits": {
            split: [dataclasses.asdict(shard) for shard in shards]
            for split, shards in index.splits.items()
        },
        "made_by": index.made_by,
        "classes": [],
    }
    if index.files is not None:
        document[_FILES] = {
            path: dataclasses.asdict(index.files[path]) for path in sorted(index.files)
        }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    # A thousand classes take json.dumps ten times as long: it indents in Python.
    classes = ",".join(
        f'\n  {{\n   "synset": {_quoted(s)},\n   "text": {_quoted(t)}\n  }}'
        for s, t in index.classes
    )
    if classes:
        text = text.replace('\n "classes": []', f'\n "classes": [{classes}\n ]', 1)
    # UTF-8 cannot hold half a surrogate pair; the caller refuses it when it writes.
    digest = xxhash.xxh3_128_hexdigest(text.encode(errors="surrogatepass"))
    before_end = text.removesuffix("\n}")
    return f'{before_end},\n "{_DIGEST}": "{digest}"\n}}\n'


def decode(document: object) -> Index:
    """Returns the index that a JSON document describes.

    Raises:
        ValueError: If a key is missing or a value has another type; names it.
    """
    top = _typed(document, dict, "the document")
    classes = (_typed(c, dict, "a class") for c in _get(top, "classes", list))
    splits = {
        split: tuple(
            _shard(_typed(shard, dict, "a shard"))
            for shard in _typed(shards, list, f"split {split!r}")
        )
        for split, shards in _get(top, "splits", dict).items()
    }
    _require_number(_value(top, "label_base"), "'label_base'")
    return Index(
        name=_get(top, "name", str),
        label_base=top["label_base"],
        classes=tuple((_get(c, "synset", str), _get(c, "text", str)) for c in classes),
        splits=splits,
        made_by=_get(top, "made_by", dict),
        files=_decode_files(_get(top, _FILES, dict)) if _FILES in top else None,
    )


def change(text: str) -> str:
    """Describes how the text of an index.json was changed, for people.

    The result is empty if the text is unchanged, or if an older version wrote it, which
    wrote no digest.

    Raises:
        ValueError: If the text is not an index.
    """
    document = json.loads(text)
    known = decode(document)
    if _DIGEST not in document and _FILES not in document:
        return ""
    wanted = encode(known)
    if text == wanted:
        return ""
    expected, got = document.get(_DIGEST), json.loads(wanted)[_DIGEST]
    if expected != got:
        return f"its digest must be {_shown(expected)} as it says, got {got}"
    pairs = enumerate(zip(text, wanted, strict=False))
    first = next((n for n, (a, b) in pairs if a != b), min(len(text), len(wanted)))
    return f"its digest is right, but it was written otherwise from character {first}"


def _shard(fields: Mapping[str, Any]) -> Shard:
    keys = ("name", "num_records", "num_bytes", "digest")
    return Shard(**{key: _value(fields, key) for key in keys})


def _decode_files(entries: Mapping[str, Any]) -> dict[str, File]:
    files = {}
    for path, entry in entries.items():
        for part in path.split("/", 1):  # a side file may be in a folder
            require_base_name(part)
        fields = _typed(entry, dict, f"file {_shown(path)}")
        keys = ("num_bytes", "digest")
        files[path] = File(**{key: _value(fields, key) for key in keys})
    return files


def _value(fields: Mapping[str, Any], key: str) -> Any:
    if key not in fields:
        raise ValueError(f"{key!r} is missing")
    return fields[key]


def _get(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    return _typed(_value(fields, key), kind, repr(key))


def _require_number(value: object, what: str) -> None:
    number = _typed(value, int, what)
    if not 0 <= number <= _MAX_NUMBER:
        raise ValueError(f"{what} must be 0 to {_MAX_NUMBER}, got {_shown(number)}")


def _typed(value: object, kind: type, what: str) -> Any:
    if type(value) is not kind:  # isinstance would take True for a number
        raise ValueError(f"{what} must be {_TYPE_NAMES[kind]}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """Returns a value as text for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

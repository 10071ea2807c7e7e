"""Joins several inputs under the names of their sources.

In: places with names, and options by name. Out: a `Listed`, whose files are URLs or
relative to the folder above all sources. Each source has the `Reader` of its kind. The
name of a file decides the kind of a source where possible, and otherwise the content of
the folder. No image is opened.
"""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from converters.inputs import exported, labels, listing, patterns, servers
from converters.inputs.archives import example_images, samples
from converters.inputs.archives.data_set import DataSetReader
from converters.inputs.classes import ClassList
from converters.inputs.classtree import TreeReader
from converters.inputs.image import Image
from converters.inputs.listed import Listed, ordered
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import NUMBER, TEXT, USUAL, Meaning, label_type
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import columns, table_sources
from converters.inputs.tables.reader import TableReader
from tfpipe import errors
from tfpipe.location import parts
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location, shown, written_scheme
from tfpipe.shards import index

TREE, TABLE, DATA_SET = "tree", "table", "data_set"
TARS, TFRECORDS = "tars", "tfrecords"
# Description for people and reader of each kind.
KINDS: Mapping[str, tuple[str, Callable[..., Reader]]] = {
    TREE: ("a tree of classes", TreeReader),
    TABLE: ("a table", TableReader),
    TARS: ("tars of a WebDataset", samples.TarReader),
    TFRECORDS: ("TFRecord files", example_images.TfrecordReader),
    DATA_SET: ("a data set of the converters", DataSetReader),
}
# Kinds of files, by their names.
_FILES: Mapping[str, Callable[[str], bool]] = {
    TABLE: table_sources.has_ending,
    TARS: samples.TARS.is_one,
    TFRECORDS: example_images.TFRECORDS.is_one,
}
_FIELDS = {
    kind: {each.name for each in dataclasses.fields(reader)}  # type: ignore[arg-type]
    for kind, (_, reader) in KINDS.items()
}
# Fields of all sources at once; the others are flags of a source, NAME=VALUE.
_OF_ALL = ("input", "input_dir", "on_null", "file_in_names", "extra_in_records")
HOW = sorted(set().union(*_FIELDS.values()) - {*_OF_ALL})
_ANY = patterns.Kind("files that one command converts", is_one=lambda name: True)
_EXPECTED = (
    "a folder with a folder for each class, a table (.csv, .tsv, .jsonl, .parquet, "
    "SQLite, postgresql://, mysql://), tars, TFRecord files, or a data set of the "
    "converters"
)


def kind_of(place: str) -> str:
    """Returns the kind of a path, a pattern or a URL; a split and "=" may be before."""
    split, bare = patterns.split_of(place)
    kind = _kind_of(bare)
    if split is not None and kind not in (TARS, TFRECORDS):
        raise ValueError(
            f"A place after {split}= must be tars or TFRecord files, got "
            f"{KINDS[kind][0]}. The splits of a tree are its folders, and those of a "
            "table are in --split_column."
        )
    return kind


def _kind_of(place: str) -> str:
    if servers.may_hold_secret(place) and not servers.is_server(place):
        raise ValueError(
            "A place must be a path or a URL, or train=, validation= or test= and one "
            "of them. The text is none of these, and is not shown here because it may "
            "hold a secret."
        )
    path, before = os.path.expanduser(place), re.split(r"[*?\[{]", place)[0]
    is_remote = bool(written_scheme(place))
    if not is_remote and os.path.isdir(path):
        return _in_folder(Folder(Location(path)))
    if named := _by_name(place):
        return named
    if is_remote:  # a pattern has signs of no URL
        location = Location.from_user("A place", before)
        if before == place:
            return _in_folder(Folder(location))
    elif os.path.lexists(path):
        return TABLE  # a SQLite file without an ending, or else an error
    elif before == place:
        errors.require_visible(path)
        raise _no_place(f"{servers.shown(path)}: no such file or folder")
    first = patterns.find([place], _ANY, USUAL)[0][0].file
    if named := _by_name(first):
        return named
    raise _no_place(f"{shown(place)}, whose first file is {shown(first)}")


def _no_place(got: str) -> ValueError:
    return ValueError(f"A place must be {_EXPECTED}; got {got}.")


def _by_name(place: str) -> str | None:
    base = place.rpartition("/")[2]
    if servers.is_server(place):
        return TABLE
    return next((kind for kind, is_one in _FILES.items() if is_one(base)), None)


def _in_folder(here: Folder) -> str:
    """Returns the kind of a folder; sub-folders beside a few files are classes."""
    has_index = here.size(index.INDEX_NAME) is not None
    if has_index and not here.location.is_local:
        return DATA_SET  # a web server cannot list the folder
    try:
        listed = listing.scan(here, "", suffixes=())
    except errors.MissingFileError:
        raise _no_place(f"{here.shown('')}: there is no such file or folder") from None
    names = [item.name for item in listed.left_out if not item.name.startswith(".")]
    kinds = set(map(_by_name, names))
    if has_index and TARS not in kinds:
        return DATA_SET
    folders_are = [TREE] if listed.folders else []
    ranked = [TFRECORDS, *folders_are, TARS, TABLE]
    return next((kind for kind in ranked if kind in {*kinds, *folders_are}), TREE)


# Flags with lists of values.
_LISTS = ("extra_columns", "hive_columns")
# A name is the first part of the names of images, and of a file in a folder of links.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class MergeSource(NamedTuple):
    """An input of a merge.

    Attributes:
        name: Name of the source, at the start of the names of its images.
        kind: A key of `KINDS`.
        reader: Reader of the source.
        class_map: New class of some of its classes; an empty text leaves a class out.
    """

    name: str
    kind: str
    reader: Reader
    class_map: Mapping[str, str]


def read_class_map(path: pathlib.Path) -> dict[str, str]:
    """Reads new classes from lines of `<class>TAB<new class>`.

    A line whose new class is empty leaves the class out of the data set. Empty lines
    are ignored.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(labels.lines_of(path), start=1):
        if not line.strip():
            continue
        old, tab, new = line.partition("\t")
        if not tab or not old or "\t" in new:
            raise ValueError(
                f"{path} must have lines of a class, a tab and its new class, got "
                f"{line!r:.80} in line {number}."
            )
        if old in found:
            raise ValueError(f"{path} must name each class once, got {old!r} twice.")
        found[old] = new.strip()
    return found


_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeReader(Reader):
    """Reads several inputs as one; the flags of the same names describe the fields.

    Attributes:
        how: Values of the flags of `HOW`, by flag and name of the source.
    """

    sources: Mapping[str, str] = dataclasses.field(repr=False)
    class_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    how: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict, repr=False
    )
    on_null: str = columns.FAIL
    file_in_names: bool = False
    extra_in_records: bool = False

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("Sources must be given as NAME=PLACE, got none.")
        for flag, values in {"class_map": self.class_map, **self.how}.items():
            for name in values:
                if name not in self.sources:
                    raise ValueError(
                        f"--{flag} must be of one of the sources "
                        f"{', '.join(self.sources)}, got {name!r}."
                    )

    @property
    def recorded(self) -> Mapping[str, Any]:
        maps = {source.name: dict(source.class_map) for source in self.checked}
        recorded: dict[str, Any] = {"sources": maps}
        flags = self.to_json()["how"]
        flags.pop("root", None)
        how = {
            each.name: _of_source(flags, each.name) | {"kind": each.kind}
            for each in self.checked
            if each.kind != TREE
        }
        if how:
            recorded |= {"how": how, "on_null": self.on_null}
            recorded["file_in_names"] = self.file_in_names
        if self.extra_in_records:
            recorded[columns.IN_RECORDS_OPTION] = True
        return recorded

    @property
    def slow_files(self) -> Sequence[str] | None:
        slow = [source.reader.slow_files for source in self.checked]
        if all(each is None for each in slow):
            return None
        return [file for each in slow for file in each or ()]

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        names = {label: name for name, label in labels.of_map(meaning).items()}
        found = [
            (each, _named(each.name, _list, each, names, meaning, workspace))
            for each in self.checked
        ]
        _require_own_files(found)
        if meaning.label_type != TEXT:
            _require_one_type(found)
        return _joined(found, in_records=self.extra_in_records)

    @functools.cached_property
    def checked(self) -> Sequence[MergeSource]:
        """Returns the sources in the order of their names, which decides all bytes."""
        return [_named(name, self._source, name) for name in sorted(self.sources)]

    def _source(self, name: str) -> MergeSource:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "The name of a source must be letters, digits, dots, dashes and "
                f"underscores, got {name!r}. Write NAME=PLACE."
            )
        place = self.sources[name]
        kind = kind_of(place)
        own = _of_source(self.how, name)
        for flag, value in own.items():
            if flag not in _FIELDS[kind]:
                takers = [KINDS[k][0] for k in KINDS if flag in _FIELDS[k]]
                raise ValueError(
                    f"--{flag} must be of a source that is {' or '.join(takers)}, got "
                    f"{name!r}, which is {KINDS[kind][0]}."
                )
            if not value and flag not in ("name_key", *_LISTS):
                raise ValueError(f"--{flag} of {name!r} must not be empty.")
        own |= {k: [*filter(None, own[k].split(","))] for k in own.keys() & {*_LISTS}}
        own |= {k: getattr(self, k) for k in {*_OF_ALL[2:]} & _FIELDS[kind]}
        field = "input_dir" if kind in (TREE, DATA_SET) else "input"
        own[field] = [place] if kind in (TARS, TFRECORDS) else place
        file = self.class_map.get(name)
        classes = {} if file is None else read_class_map(pathlib.Path(file))
        return MergeSource(name, kind, KINDS[kind][1](**own), classes)


def _of_source(how: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    return {flag: values[name] for flag, values in how.items() if name in values}


def _list(
    source: MergeSource,
    names: Mapping[int, str],
    meaning: Meaning,
    workspace: Workspace,
) -> Listed:
    """Lists a source; its classes have their new names, an empty name to leave out."""
    listed = source.reader.list_images(meaning, workspace)
    listed = listed._replace(apart=listed.folders_of_images())
    if source.kind == TREE:
        listed = listed._replace(apart=[listed.folder])
    listed = listed.named().of_type(meaning.label_type)
    listed = exported.with_columns(listed, workspace)
    own = listed.class_names()
    if missing := sorted(set(source.class_map) - set(own)):
        raise ValueError(
            f"--class_map of {source.name!r} must name classes of that source, got "
            f"{missing[0]!r}. It has {len(own)}, the first is {own[0]!r}."
        )
    if names and label_type(own, meaning.label_type) == NUMBER:
        mapped = {int(number): name for number, name in source.class_map.items()}
        return listed.named({**names, **mapped}, names_from="--label_map")
    return listed.renamed(source.class_map)


def _named(name: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return work(*arguments)
    except (ValueError, errors.BadIndexError, errors.RemoteError) as error:
        kind, cause = type(error), error
    except OSError as error:
        if error.errno is not None:  # its path names the place of the source
            raise
        raise OSError(f"Source {name}: {error}") from error
    # The readers know the place by the flags of their own commands.
    text = re.sub(r"--input(_dir)?\b", "its place", str(cause))
    raise (ValueError if isinstance(cause, ValueError) else kind)(
        f"Source {name}: {text}"
    ) from cause


_Found = Sequence[tuple[MergeSource, Listed]]


def _joined(found: _Found, *, in_records: bool) -> Listed:
    """Joins sources; a class of one name is one class, and splits are as well."""
    local = [listed.folder for _, listed in found if listed.folder.is_local]
    paths = [os.path.realpath(each.path) for each in local]
    top = Location(os.path.commonpath(paths)) if paths else found[0][1].folder
    parts = [_in_merge(source, listed, top) for source, listed in found]
    splits: dict[str, dict[str, list[Image]]] = {}
    for part in parts:
        for split, classes in part.splits.items():
            joined = splits.setdefault(split, {})
            for name, images in classes.items():
                joined.setdefault(name, []).extend(images)
    for split in splits:
        if not splits[split]:
            raise ValueError(
                f"Split {split} must have at least one class, got none: --class_map "
                "leaves out all of them."
            )
    texts: dict[str, str] = {}
    for part in parts:
        own = part.classes.texts
        texts = {n: text for n, text in own.items() if n != text} | texts
    counts = [part.num_rows for part in parts]
    return Listed(
        top,
        ordered(splits),
        [item for part in parts for item in part.left_out],
        ClassList(texts=texts),
        several={n: classes for part in parts for n, classes in part.several.items()},
        states={file: state for part in parts for file, state in part.states.items()},
        rows=[r._replace(in_records=in_records) for part in parts for r in part.rows],
        num_rows=None if None in counts else sum(filter(None, counts)),
        apart=[folder for part in parts for folder in part.apart],
        warnings=[f"{s.name}: {line}" for s, part in found for line in part.warnings],
    )


def _in_merge(source: MergeSource, listed: Listed, top: Location) -> Listed:
    """Returns the images of a source by their names in the merge, below the top folder.

    A class without a name is left out.
    """
    prefix, folder, above = f"{source.name}/", listed.folder, ""
    if folder.is_local:
        path = os.path.relpath(os.path.realpath(folder.path), top.path)
        above = "" if path == "." else f"{path}/"
    several = {name: _kept(names) for name, names in listed.several.items()}
    left_out = [item.under(prefix) for item in listed.left_out]
    splits: dict[str, dict[str, list[Image]]] = {}
    for split, classes in listed.splits.items():
        kept = splits[split] = {name: [] for name in filter(None, classes)}
        for name, images in classes.items():
            for image in images:
                is_url = parts.is_remote(folder, image.file)
                file = folder.resolve(image.file).text if is_url else above + image.file
                moved = image._replace(name=prefix + image.name, file=file)
                if names := several.get(image.name, _kept([name])):
                    kept.setdefault(names[0], []).append(moved)
                else:
                    left_out.append(LeftOut(moved.name, Reason.CLASS_NOT_MAPPED))
    rows = [
        each._replace(
            row_of={prefix + name: row for name, row in each.row_of.items()},
            source=source.name,
        )
        for each in listed.rows
        if each.columns
    ]
    return listed._replace(
        splits=splits,
        left_out=left_out,
        several={prefix + name: names for name, names in several.items()},
        states={above + file: state for file, state in listed.states.items()},
        rows=rows,
    )


def _kept(classes: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(filter(None, classes))]


def _require_one_type(found: _Found) -> None:
    names = {name for _, listed in found for name in listed.class_names() if name}
    words = sorted(name for name in names if label_type([name], None) != NUMBER)
    for source, listed in found:
        kept = set(listed.class_names()) - set(source.class_map.values())
        if words and kept and kept.isdisjoint(words):
            raise ValueError(
                "Classes of all sources must be names, or all must be numbers, "
                f"got {min(kept)} of {source.name!r} beside {words[0]!r}. Name them "
                f"with --class_map={source.name}=FILE, in lines of a number, a tab and "
                "a class."
            )


def _require_own_files(found: _Found) -> None:
    owners: dict[str, str] = {}
    for source, listed in found:
        files: Iterable[str] = (image.file for image in listed.images())
        if source.kind == TREE:
            files = (file.rpartition("/")[0] for file in files)
        for file in sorted(set(files)) if source.kind != TABLE else ():
            shown = listed.folder.resolve(file).shown
            owner = owners.setdefault(shown, source.name)
            if owner != source.name:
                raise ValueError(
                    f"Sources must have files of their own, got {shown} in {owner!r} "
                    f"and in {source.name!r}. Leave one of the sources out, or name "
                    "folders beside each other."
                )
